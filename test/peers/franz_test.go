package peers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franzStatus is how often the relay on franz-go confirms what is in the topics.
const franzStatus = time.Second

// transaction is one that was read from the WAL and has records that the brokers have not acknowledged yet.
type transaction struct {
	end  pglogrepl.LSN // 0 = not read to its end
	open int
}

// franz is a small relay: WAL by pglogrepl, records by franz-go's idempotent producer, and a position that is confirmed
// when the brokers have acknowledged everything up to it. It is cdc-relay without its journal.
type franz struct {
	orders
	conn   *pgconn.PgConn
	client *kgo.Client

	relation map[uint32]*pglogrepl.RelationMessageV2
	current  *transaction
	failed   chan error

	mu        sync.Mutex
	pending   []*transaction // in commit order; guarded by mu
	confirmed pglogrepl.LSN  // guarded by mu
}

func (o orders) franz(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(o.Brokers...), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(largestRecord),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(250*time.Millisecond))
	if err != nil {
		return fmt.Errorf("make a producer: %w", err)
	}
	defer client.Close()
	conn, err := pgconn.Connect(ctx, o.URL+"&replication=database")
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	f := &franz{orders: o, conn: conn, client: client, relation: make(map[uint32]*pglogrepl.RelationMessageV2),
		failed: make(chan error, 1)}
	options := pglogrepl.StartReplicationOptions{PluginArgs: []string{"proto_version '1'",
		"publication_names '" + o.Publication + "'"}}
	if err := pglogrepl.StartReplication(ctx, conn, o.Slot, 0, options); err != nil {
		return fmt.Errorf("start the replication: %w", err)
	}
	return f.run(ctx)
}

func (f *franz) run(ctx context.Context) error {
	due := time.Now()
	for {
		if now := time.Now(); !now.Before(due) {
			if err := f.status(ctx); err != nil {
				return err
			}
			due = now.Add(franzStatus)
		}
		limited, cancel := context.WithDeadline(ctx, due)
		message, err := f.conn.ReceiveMessage(limited)
		cancel()
		select {
		case failed := <-f.failed:
			return failed
		default:
		}
		if err != nil {
			if pgconn.Timeout(err) && ctx.Err() == nil {
				continue
			}
			return fmt.Errorf("read the WAL: %w", err)
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyData:
			asked, err := f.data(ctx, m.Data)
			if err != nil {
				return err
			}
			if asked {
				due = time.Now()
			}
		}
	}
}

// status confirms what every earlier record's acknowledgement allows.
func (f *franz) status(ctx context.Context) error {
	f.mu.Lock()
	lsn := f.confirmed
	f.mu.Unlock()
	if lsn == 0 {
		return nil
	}
	err := pglogrepl.SendStandbyStatusUpdate(ctx, f.conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: lsn})
	if err != nil {
		return fmt.Errorf("confirm: %w", err)
	}
	return nil
}

func (f *franz) data(ctx context.Context, data []byte) (asked bool, err error) {
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		return k.ReplyRequested, err
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return false, err
		}
		return false, f.logical(ctx, x.WALData)
	}
	return false, nil
}

func (f *franz) logical(ctx context.Context, wal []byte) error {
	message, err := pglogrepl.ParseV2(wal, false)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	switch m := message.(type) {
	case *pglogrepl.RelationMessageV2:
		f.relation[m.RelationID] = m
	case *pglogrepl.BeginMessage:
		f.mu.Lock()
		f.current = &transaction{}
		f.pending = append(f.pending, f.current)
		f.mu.Unlock()
	case *pglogrepl.InsertMessageV2:
		f.produce(ctx, m)
	case *pglogrepl.CommitMessage:
		f.mu.Lock()
		f.current.end = m.TransactionEndLSN
		f.mu.Unlock()
		f.settle(f.current, 0)
	}
	return nil
}

func (f *franz) produce(ctx context.Context, m *pglogrepl.InsertMessageV2) {
	row := make(map[string][]byte)
	for n, column := range f.relation[m.RelationID].Columns {
		row[column.Name] = m.Tuple.Columns[n].Data
	}
	t := f.current
	f.settle(t, 1)
	record := &kgo.Record{Topic: f.Topic + string(row["aggregate_type"]), Key: row["aggregate_id"], Value: row["payload"],
		Headers: []kgo.RecordHeader{{Key: "id", Value: row["id"]}}}
	f.client.Produce(ctx, record, func(_ *kgo.Record, err error) {
		if err == nil {
			f.settle(t, -1)
			return
		}
		select { // never confirmed: the process ends, and the next one sends it again
		case f.failed <- fmt.Errorf("produce: %w", err):
		default:
		}
	})
}

// settle counts a transaction's records that are not acknowledged, and moves the position on.
func (f *franz) settle(t *transaction, more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.open += more
	for len(f.pending) > 0 && f.pending[0].end != 0 && f.pending[0].open == 0 {
		f.confirmed = f.pending[0].end
		f.pending = f.pending[1:]
	}
}
