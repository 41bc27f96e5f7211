package lanes

// queue is the lanes that are ready, first in, first out.
type queue struct {
	lanes []*Lane
	head  int
}

func (q *queue) push(l *Lane) { q.lanes = append(q.lanes, l) }

func (q *queue) peek() *Lane {
	if q.head == len(q.lanes) {
		return nil
	}
	return q.lanes[q.head]
}

func (q *queue) pop() *Lane {
	l := q.peek()
	if l == nil {
		return nil
	}
	q.lanes[q.head] = nil
	if q.head++; q.head == len(q.lanes) {
		q.lanes, q.head = q.lanes[:0], 0
	} else if q.head >= 1024 && q.head*2 >= len(q.lanes) {
		n := copy(q.lanes, q.lanes[q.head:])
		clear(q.lanes[n:])
		q.lanes, q.head = q.lanes[:n], 0
	}
	return l
}

// waits is a heap of the lanes that wait, by when they may go on.
type waits []*Lane

func (w waits) Len() int           { return len(w) }
func (w waits) Less(i, j int) bool { return w[i].until.Before(w[j].until) }
func (w waits) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *waits) Push(x any)        { *w = append(*w, x.(*Lane)) }
func (w *waits) Pop() any {
	old := *w
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	return last
}
