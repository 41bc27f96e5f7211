package sink

import "sync"

// Nodes is a driver's table of what it has per topic when each topic is a node of its own: a stream, a queue, an
// exchange. Numbers count from 0 in the order in which topics are seen first; nothing leaves the table. The zero value
// is empty. All methods may be called at the same time.
type Nodes[T any] struct {
	mu      sync.Mutex // guards what follows
	nodes   []T        // by number
	byTopic map[string]int32
}

// Of is the topic's node and its number; make makes it at first sight, and must not call n.
func (n *Nodes[T]) Of(topic string, make func() T) (node T, number int32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	number, known := n.byTopic[topic]
	if !known {
		if n.byTopic == nil {
			n.byTopic = map[string]int32{}
		}
		number = int32(len(n.nodes))
		n.nodes, n.byTopic[topic] = append(n.nodes, make()), number
	}
	return n.nodes[number], number
}

// At is the node with that number, which [Nodes.Of] has given.
func (n *Nodes[T]) At(number int32) T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[number]
}

// All are the nodes by number. The caller must not change them.
func (n *Nodes[T]) All() []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes
}
