package main

import (
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
)

// choose puts the sites that a test reaches in the order in which they are tried: those of its own package first, and
// of these the ones that few other tests reach, that have words in common with the test's name and comment, in the
// file that has the test's file's name, that change what the code means; one of each function, then the next one of
// each.
func (b *bed) choose(t traced, reachedBy map[int]int, o options) []site {
	type choice struct {
		site
		turn  int
		score int
		dice  uint64
	}
	var choices []choice
	for _, id := range t.reached {
		s := b.sites[id]
		if o.only != "" && s.folder != o.only || o.only == "" && s.folder != t.folder && isScaffold(s.folder) ||
			!o.where.MatchString(s.where+" "+s.change) {
			continue
		}
		dice := fnv.New64a()
		dice.Write([]byte{byte(o.seed), byte(o.seed >> 8)})
		dice.Write([]byte(t.name + s.folder + s.where + s.change))
		c := choice{site: s, dice: dice.Sum64()}
		if s.folder != t.folder {
			c.score += 1000
		}
		c.score += 10*min(reachedBy[id]-1, 20) + price[s.rank] - 15*min(common(t.words, s.where+" "+s.change), 3)
		if strings.Contains(s.change, "`err ") || strings.Contains(s.change, "Err") {
			c.score += 15 // every test sees whether something works at all
		}
		if strings.TrimSuffix(s.file, ".go") == strings.TrimSuffix(t.file, "_test.go") {
			c.score -= 25
		}
		choices = append(choices, c)
	}
	slices.SortFunc(choices, func(a, b choice) int {
		if a.score != b.score {
			return a.score - b.score
		}
		if a.dice < b.dice {
			return -1
		}
		return 1
	})
	turns := map[string]int{}
	for i := range choices {
		c := &choices[i]
		c.turn = turns[c.folder+c.where]
		turns[c.folder+c.where]++
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return a.score + 30*a.turn - b.score - 30*b.turn })
	sites := make([]site, len(choices))
	for i, c := range choices {
		sites[i] = c.site
	}
	return sites
}

// price makes the kinds of changes come later that tests notice which look at little.
var price = [...]int{rankSense: 0, rankStep: 0, rankText: 40, rankAll: 20}

var word = regexp.MustCompile(`[A-Z]?[a-z]{3,}`)

// words are the words of a text, and of the names in it, without their endings.
func words(text string) map[string]bool {
	found := map[string]bool{}
	for _, w := range word.FindAllString(text, -1) {
		found[strings.ToLower(w[:min(len(w), 5)])] = true
	}
	for _, common := range []string{"test", "break", "seen", "fail", "that", "when", "what", "with", "error", "left",
		"retur", "without"} {
		delete(found, common)
	}
	return found
}

func common(a map[string]bool, text string) int {
	n := 0
	for w := range words(text) {
		if a[w] {
			n++
		}
	}
	return n
}

// isScaffold tells whether a folder serves tests: broken, it says nothing about tests of other folders.
func isScaffold(folder string) bool {
	first, _, _ := strings.Cut(folder, "/")
	return first == "test" || first == "embedded" || folder == "sink/sinktest" || folder == "verify"
}
