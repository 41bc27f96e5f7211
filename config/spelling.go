package config

// nearest is the candidate that takes the fewest edits, or whose last word does: "brokers" is nearest to
// "kafka.brokers".
func nearest(name string, candidates []string) string {
	const foreignSection = 2 // edits that a match of the last word alone is worth
	best, fewest := "", -1
	for _, c := range candidates {
		edits := min(distance(name, c), foreignSection+distance(lastWord(name), lastWord(c)))
		if fewest < 0 || edits < fewest {
			best, fewest = c, edits
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
