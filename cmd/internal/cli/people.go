package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
)

// Logger writes to standard error in the configured form, and in that for people on a terminal where log.format is not
// set, through the returned queue: it never waits for
// their reader. Call it once.
func (a *App) Logger(cfg config.Config) (zerolog.Logger, *logqueue.Writer) {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	to := Beneath(a.Err)
	if cfg.Log.Format == config.LogConsole || a.Origin("log.format") == "" && IsTerminal(to) {
		to = logqueue.Console(to, a.coloured(to))
	}
	a.log = logqueue.New(to).Reports(func(c zerolog.Context) zerolog.Context { return c.Str("service", cfg.Service) })
	return Labelled(zerolog.Nop().Level(level), a.log, cfg), a.log
}

// Labelled is the logger with the lines and the label of the configuration.
func Labelled(like zerolog.Logger, lines *logqueue.Writer, cfg config.Config) zerolog.Logger {
	return zerolog.New(lines).Level(like.GetLevel()).With().Timestamp().Str("service", cfg.Service).Logger()
}

// Narration is where a command tells people what it is doing: with --json standard output is for machines.
func (a *App) Narration() io.Writer {
	if a.JSON {
		return a.Err
	}
	return a.Out
}

// Progress gives a function that shows one line in place on a terminal; the empty line clears it.
func (a *App) Progress() func(string) {
	if a.JSON || !IsTerminal(a.Err) {
		return func(string) {}
	}
	return func(line string) { _ = Overwrite(a.Err, line) }
}

// Bar is a line that shows how far something is, on a terminal only.
type Bar struct {
	a     *App
	shown bool
}

const barWidth = 30

// NewBar makes a bar that shows nothing yet.
func NewBar(a *App) *Bar { return &Bar{a: a} }

// Show shows done of all.
func (b *Bar) Show(done, all int64) {
	if !IsTerminal(b.a.Err) || all <= 0 {
		return
	}
	b.shown = true
	full := int(min(max(done, 0), all) * barWidth / all)
	bar := strings.Repeat("#", full) + strings.Repeat("-", barWidth-full)
	fmt.Fprintf(Beneath(b.a.Err), "\r[%s] %d/%d", bar, done, all)
}

// End leaves the bar as it is and goes on below it.
func (b *Bar) End() {
	if b.shown {
		fmt.Fprintln(b.a.Err)
	}
}

// Confirm has a person type the word, unless yes says so already.
func (a *App) Confirm(yes bool, word, what string) error {
	if yes {
		return nil
	}
	if !CanAsk() {
		return Usage(fmt.Errorf("%s No terminal to confirm on: pass --yes to continue", what))
	}
	Fprintf(a.Err, "%s\nType %s to continue: ", what, word)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	err := answered(os.Stdin, stop, word)
	if errors.Is(err, errInterrupted) {
		fmt.Fprintln(a.Err)
	}
	return err
}

var errInterrupted = errors.New("interrupted; nothing was done")

// answered reads the answer, and does not wait for it any longer when there is a signal: the commands take the first
// one for themselves.
func answered(in io.Reader, stop <-chan os.Signal, word string) error {
	answers := make(chan error, 1)
	go func() { // who gets no answer ends with the program
		answer, err := bufio.NewReader(in).ReadString('\n')
		switch {
		case err != nil && err != io.EOF:
			answers <- fmt.Errorf("read the answer: %w", err)
		case strings.TrimSpace(answer) != word:
			answers <- errors.New("not confirmed; nothing was done")
		default:
			answers <- nil
		}
	}()
	select {
	case err := <-answers:
		return err
	case <-stop:
		return errInterrupted
	}
}

// CanAsk reports whether there is a person at the terminal.
func CanAsk() bool { return IsTerminal(os.Stdin) }

// UserAtHost is who runs this command, as the machine knows it.
func UserAtHost() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}
