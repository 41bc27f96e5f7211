import { Unavailable, describe } from './errors.js'
import type { Inbox } from './inbox.js'

/** How long a process that has died or is frozen keeps others from a topic. */
const leaseSeconds = 5

/** Where a topic begins. unclean: the process that had it last did not release it. replaced: how far another one was. */
export interface Start { next: bigint; unclean: boolean; replaced: bigint | undefined }

/**
 * Which process reads a topic that one process reads at a time. If two read one all the same, the events' rows are the
 * fence: each effect still happens once, and in order.
 */
export class Lease {
  private readonly s: string

  constructor(private readonly inbox: Inbox, readonly holder: string) {
    this.s = `"${(inbox.options.schema ?? 'public').replaceAll('"', '""')}".`
  }

  /** Reports whether another process has the topic, and has said so within the lease. */
  async held(topic: string): Promise<boolean> {
    const rows = await this.query('look who reads a topic', `SELECT FROM ${this.s}inbox_offset
      WHERE consumer = ${this.s}inbox_register($1) AND topic = $2 AND partition = 0 AND holder <> $3
      AND at > now() - $4 * interval '1 second'`, [this.inbox.options.name, topic, this.holder, leaseSeconds])
    return rows.length > 0
  }

  /** Takes the topic, unless another process has it: undefined. One that the database does not know begins at first. */
  async take(topic: string, { id, first }: { id: string; first: bigint }): Promise<Start | undefined> {
    const [row] = await this.query('take a topic', `WITH me AS (SELECT ${this.s}inbox_register($1) AS c),
      before AS (SELECT o.* FROM ${this.s}inbox_offset o JOIN me ON o.consumer = me.c WHERE o.topic = $2 AND o.partition = 0)
      INSERT INTO ${this.s}inbox_offset AS o (consumer, topic, partition, topic_id, next_offset, holder)
      SELECT c, $2, 0, $3, $4, $5 FROM me
      ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now(),
      next_offset = CASE WHEN o.topic_id = excluded.topic_id THEN o.next_offset ELSE excluded.next_offset END,
      topic_id = excluded.topic_id
      WHERE o.holder IS NULL OR o.holder = excluded.holder OR o.at < now() - $6 * interval '1 second'
      RETURNING next_offset AS next, (SELECT holder <> $5 FROM before) AS unclean,
        (SELECT b.next_offset FROM before b WHERE b.topic_id <> o.topic_id) AS replaced`,
    [this.inbox.options.name, topic, id, first, this.holder, leaseSeconds])
    return row && { next: BigInt(row.next), unclean: row.unclean === true,
      replaced: row.replaced === null ? undefined : BigInt(row.replaced) }
  }

  /** Says that this process still reads the topic, and reports whether no other one has taken it. */
  async hold(topic: string): Promise<boolean> {
    const rows = await this.query('hold a topic', `UPDATE ${this.s}inbox_offset SET at = now()
      WHERE consumer = ${this.s}inbox_register($1) AND topic = $2 AND partition = 0 AND holder = $3 RETURNING true`,
    [this.inbox.options.name, topic, this.holder])
    return rows.length > 0
  }

  /** Sets the offset of a topic back that ends below it. */
  async rewind(topic: string, next: bigint): Promise<void> {
    await this.query('rewind a topic', `SELECT ${this.s}inbox_rewind($1, $2, 0, $3)`, [this.inbox.options.name, topic, next])
  }

  private async query(what: string, text: string, values: unknown[]): Promise<any[]> {
    try {
      return (await this.inbox.options.pool.query(text, values)).rows
    } catch (error) {
      throw new Unavailable(`${what}: ${describe(error)}`, { cause: error })
    }
  }
}
