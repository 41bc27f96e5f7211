package sink

import (
	"context"
	"errors"
	"math"
	"time"
)

// Driver is one kind of broker under the [Engine]. The engine calls Produce from one goroutine per node (and one extra
// per partition in trouble); everything else may be called from any goroutine and must not block.
type Driver interface {
	// Partitions is the number of partitions of a topic, or 0 while it is not known. Asking for an unknown topic makes
	// the driver learn it in the background; it closes the channel of Changed when there is news. The error says why a
	// topic is not usable at present (unknown to the broker, not authorized); it is informative, and asking goes on. It is
	// the topic's trouble unless the error, or one that it wraps, is a [Troubled].
	//
	// A smaller number than before, without an error, is certain: another topic has its name now, and the partitions
	// beyond are gone with all that was written to them. Node knows none of them any more.
	Partitions(topic string) (int, error)

	// Partition chooses the partition of a record, given the topic's number of partitions. The same key must always go
	// to the same partition for the same count. Called once per Submit or Retry of a record, one call at a time.
	Partition(r *Record, partitions int) int32

	// Node is the broker that takes requests for the partition, or -1 while none is known.
	Node(topic string, partition int32) int32

	// Changed is closed at the next change of what Partitions or Node would answer. Ask for it before asking them.
	Changed() <-chan struct{}

	// Limits are the largest batch and the largest single record for the topic, in the bytes that Size counts; 0 = no
	// limit is known.
	Limits(topic string) (batch, record int)

	// Size bounds the bytes that the record adds to a batch, uncompressed.
	Size(r *Record) int

	// Produce sends one request with at most one batch per partition to the node, waits for the answer and sets the
	// Outcome of each batch. It returns when every batch has one; when the context ends those without an answer are
	// Unknown. The driver may keep what it needs for a resend in Batch.State.
	//
	// A batch whose outcome was NotWritten or Unknown comes again, unchanged: same records, same State, maybe to
	// another node. A driver's duplicate detection relies on it. Only its front is missing then, if the driver
	// said by Outcome.Written that it is done. A batch is re-cut by the engine only after Refused; the driver must make
	// that safe (an earlier attempt of the same batch may have been Unknown). After [Engine.Abandon] a batch that was
	// Unknown never comes again, and others of its partition do; nor does one that the engine gives up, see [Dropper].
	Produce(ctx context.Context, node int32, batches []*Batch)

	// Close frees connections. No call follows it.
	Close() error
}

// Leaver is a [Driver] that keeps its brokers' ends for the engine on it, and must be notified when that one
// has gone ([Engine.Abandon]): the next begins with what it reads back, or with the knowledge that nothing is missing.
type Leaver interface{ Left() }

// Recognizer is a [Driver] that finds in its topics what another process of this relay had sent, and what arrived when
// the topics had been read back.
type Recognizer interface {
	// Recognize says which records are of the relay's outboxes, by what their header x-outbox-source has. It is called
	// before they are read back.
	Recognize(ours func(source string) bool)
	// Unclaimed is the topic with the record of ours that was found first and is none of those that were given to Produce
	// since, and the time at which it was found; zero: there is no such record.
	Unclaimed() (topic string, since time.Time)
}

// Worded is a [Driver] whose broker has its own word for a topic, such as exchange or queue, and no partitions.
// Messages to people use it.
type Worded interface{ Word() string }

// Dropper is a [Driver] that keeps state for a batch it has seen. The engine calls Dropped when it gives such a batch
// up, because the partition is gone or the records go back to the submitter ([Engine.Divert]): no Produce has it, and
// its records come again in other batches, if at all. Consumers may have read what was written of it, so the driver
// counts that as possible duplicates. It must not block, nor call the engine.
type Dropper interface{ Dropped(b *Batch) }

// Batch is consecutive records of one partition that are produced together.
type Batch struct {
	Topic     string
	Partition int32
	Records   []*Record
	Bytes     int // sum of Size
	// Narrowed reports that the records are part of a batch that was refused without naming one: one of these few may be
	// guilty.
	Narrowed bool
	// Alone reports that the batch goes alone, so that no other waits for it: its answer may take any time.
	Alone bool

	// Proved is the Outcome.Prove of the attempt before. The engine's Permit has said yes to that time since.
	Proved time.Time

	State any // the driver's, kept from attempt to attempt

	Outcome Outcome // set by Produce
}

// Verdict is a broker's answer about a batch.
type Verdict uint8

// The verdicts.
const (
	Unanswered Verdict = iota
	Accepted           // written durably; or known to have been written by an earlier attempt
	NotWritten         // certainly not written, by this attempt or an earlier one; try again
	Unknown            // may have been written; try again, unchanged
	Refused            // certainly not written, and the same bytes would be refused again
)

// Trouble tells how far the cause of a NotWritten or Unknown reaches, for status and for the pace of retries.
type Trouble uint8

// The kinds of trouble, from the narrowest to the widest.
const (
	NoTrouble            Trouble = iota
	PartitionTrouble             // this partition only: no leader, not enough replicas
	TopicTrouble                 // unknown topic, not authorized for the topic
	ClusterTrouble               // broker or network
	ConfigurationTrouble         // authentication, TLS, unsupported version: a person must act
)

// Troubled is an error with the kind of trouble that it causes.
type Troubled interface {
	error
	Trouble() Trouble
}

// TroubleOf returns the kind of trouble of err, if it or an error that it wraps is a [Troubled], else otherwise.
func TroubleOf(err error, otherwise Trouble) Trouble {
	var t Troubled
	if errors.As(err, &t) {
		return t.Trouble()
	}
	return otherwise
}

// Gone is an error, of [Driver.Partitions] or of an [Outcome], that reports whether sending a batch again that may have
// been written cannot show whether it was. Either the topic is gone for certain, with what recognized the batch, such
// as a sequence of records, or the broker does not let us write there for now. The batch's records go back then, and
// count as possible duplicates. A driver that promises no duplicates does not report a missing right this way.
type Gone interface {
	error
	Gone() bool
}

// gone reports whether the error, or one that it wraps, is a [Gone] that says so.
func gone(err error) bool {
	var g Gone
	return errors.As(err, &g) && g.Gone()
}

// troubleOf is whose trouble an error of Partitions is.
func troubleOf(err error) Trouble { return TroubleOf(err, TopicTrouble) }

// Outcome is the verdict on a batch with its particulars.
type Outcome struct {
	Verdict Verdict
	// Written counts the records at the front of the batch that are written durably, whatever the verdict on the rest.
	// They are published; the batch goes on without them. Accepted means all of them and needs no number. Brokers that
	// take a batch whole or not at all leave it 0.
	Written int
	// Accepted, or Written: the offset of the first record, the others follow it; -1 when the broker could not say.
	FirstOffset int64
	// Accepted, or Written: the offset of each written record, where they do not follow the first; else nil.
	Offsets []int64
	// Open is the offset of the partition's first record of our outboxes, with or without a batch of this engine, that is
	// known to be written and that no outcome has told of; 0: there is none. The driver need not count Beyond.
	Open int64
	// Beyond, with NotWritten or Unknown, lists the records behind the front that are written durably, in order of their
	// indexes. The engine publishes them if it gives the batch up; until then the driver leaves them out of its requests.
	Beyond []Placed
	// Refused: the indexes of the guilty records when the broker named them. Empty: the guilty are not known, the engine
	// bisects; a batch of one record is guilty itself.
	Guilty []int
	// Refused: the reason for each of the guilty (same length as Guilty), or one reason for the batch.
	Reasons []*Reason
	// Unsent, with Refused, reports that the driver refused it itself: no broker has seen anything of it in this attempt.
	Unsent bool
	// NotWritten, Unknown: the cause, for status and logs. None, with NotWritten: nothing is wrong, the driver only tells
	// of what it has written, or wants the engine to ask again whether it may send, before it goes on.
	Err     error
	Trouble Trouble
	// Prove, with NotWritten and no error: the driver goes on once the engine's Permit has said yes to this time.
	Prove time.Time
	// NotWritten, Unknown: true means that the next attempt should wait (backoff); false that the first retry may go at
	// once, as after a broken idle connection or a leader that moved. Repeated trouble pauses in any case.
	Pause bool
	// Code is the broker's name for what it answered, such as REQUEST_TIMED_OUT: one of few, fit for a metric. Empty when
	// it accepted, when nothing was answered, and for drivers whose brokers have no names.
	Code string
	// Alone, with Unknown and never for a batch that goes alone: the answer takes unusually long, maybe because of another
	// partition in the request, and is not waited for any more. That is not an error: the batch goes again at once, alone.
	Alone bool
	// Throttle is the pause that the node asked for with its answer. That is not an error.
	Throttle time.Duration
}

// offset is that of record i, which is written; -1 when the broker could not say.
func (o *Outcome) offset(i int) int64 {
	switch {
	case o.Offsets != nil:
		return o.Offsets[i]
	case o.FirstOffset >= 0:
		return o.FirstOffset + int64(i)
	}
	return -1
}

// complete is the offset in front of which all records of ours have results, but for those that are to be published by
// this outcome; placed are written and to be told of later.
func (o *Outcome) complete(placed []Placed) int64 {
	first := int64(math.MaxInt64)
	if o.Open > 0 {
		first = o.Open
	}
	for _, p := range placed {
		if p.Offset >= 0 {
			first = min(first, p.Offset)
		}
	}
	return first
}

// Placed is a record of a batch that is written, by index, and its offset; -1 when the broker could not say.
type Placed struct {
	Index  int
	Offset int64
}

// goesOn reports that nothing is wrong: the driver tells of a front that is written, or has only prepared itself,
// before it goes on with the rest.
func (o *Outcome) goesOn() bool { return o.Verdict == NotWritten && o.Err == nil }

// answered reports whether the node is well: it has spoken about the batch.
func (o *Outcome) answered() bool {
	switch o.Verdict {
	case Accepted, Refused:
		return true
	default:
		return o.Written > 0 || o.goesOn() || o.Trouble == PartitionTrouble || o.Trouble == TopicTrouble
	}
}
