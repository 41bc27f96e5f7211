package ask

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// List is a list of things of one type, as it is read and printed.
type List[T any] struct {
	None, Columns string // what is printed when there is none; the columns' names, between tabs
	Read          func(ctx context.Context, st *store.Store, f store.Filter, after string,
		limit int) (store.Page[T], error)
	Line   func(w io.Writer, item *T, now time.Time)
	Outbox func(item *T) string // where a slot has several
}

// ofOutbox is Line with the outbox as the last column.
func (l List[T]) ofOutbox(w io.Writer, item *T, now time.Time) {
	var line strings.Builder
	l.Line(&line, item, now)
	cli.Fprintf(w, "%s\t%s\n", strings.TrimSuffix(line.String(), "\n"), cli.Plain(l.Outbox(item)))
}

// Print prints one page of a list, or with --all every page.
func (l List[T]) Print(a *cli.App, choose Choose, p Page) error {
	filter := choose.filter(a)
	p.Check(a)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := choose.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	page, err := Pages(p, func(after string, limit int) (store.Page[T], error) {
		return l.Read(ctx, st, filter, after, limit)
	})
	if err != nil {
		return BadFilter(err)
	}
	if a.JSON {
		return a.PrintJSON(page)
	}
	if cfg.Outbox.Tables == "" {
		return Table(a, page, l.None, l.Columns, l.Line)
	}
	return Table(a, page, l.None, l.Columns+"\tOUTBOX", l.ofOutbox)
}

// Pages reads one page, or with --all every page.
func Pages[T any](p Page, read func(after string, limit int) (store.Page[T], error)) (store.Page[T], error) {
	if p.All {
		p.Limit = longestList // of one look; all of them are printed
	}
	page, err := read(p.After, p.Limit)
	for more := page.Next; err == nil && p.All && more != ""; {
		var next store.Page[T]
		next, err = read(more, p.Limit)
		page.Items, page.Next, more = append(page.Items, next.Items...), next.Next, next.Next
	}
	return page, err
}

// Table prints a page, a line for each item, or what there is to say without one.
func Table[T any](a *cli.App, page store.Page[T], none, columns string,
	line func(w io.Writer, item *T, now time.Time)) error {
	if len(page.Items) == 0 {
		cli.Fprintln(a.Out, none)
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	cli.Fprintln(w, cli.Own(columns))
	now := time.Now()
	for i := range page.Items {
		line(w, &page.Items[i], now)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	if page.Next != "" {
		cli.Fprintf(a.Out, "more: --after %s\n", page.Next)
	}
	return nil
}
