import type { Pool, PoolClient } from 'pg'
import { SetBack, Unavailable, describe } from './errors.js'
import { isUuid, type Message, type Read } from './message.js'

/** What inbox_claim answers: new means the caller has the effect. */
export type Claim = 'new' | 'behind' | 'done' | 'parked' | 'dead' | 'discarded'

/** A parked event whose time has come. */
export interface Due {
  message: Message
  id: string
  source: string
  type: string
  attempts: number
}

/** How far a partition is. */
export interface Place {
  topic: string
  partition: number
  next: bigint
}

/** What the caller has read of a partition in an epoch: the database has no less, or it was restored. */
export interface Since {
  epoch: number
  wrote: bigint
}

/** The inbox's tables, by the functions that `cdc-relay init --inbox` creates. Invariant: it never runs a handler. */
export class Ledger {
  private readonly s: string
  private holdsAll: boolean | undefined
  private known: { consumer: number; start: string; file: string } | undefined
  /** What this process committed last. */
  private last: { id: string; source: string; anyState: boolean } | undefined
  /** Grows whenever offsets are read again. */
  epoch = 0

  constructor(private readonly pool: Pool, readonly name: string, schema: string) {
    this.s = `"${schema.replaceAll('"', '""')}".`
  }

  async connect(): Promise<PoolClient> {
    const client = await this.answer('connect', this.pool.connect())
    // Without a listener, the end of a session that is in use ends the process; its statements fail by themselves.
    if (!client.listeners('error').includes(ignore)) client.on('error', ignore)
    return client
  }

  /**
   * Begins a transaction and claims an event in it, in one round trip. It throws SetBack if the database is not the one
   * that the caller has read its offset from.
   */
  async claim(client: PoolClient, r: Read, since?: Since): Promise<{ state: Claim; pid: number }> {
    const text = (value: string) => client.escapeLiteral(value)
    const key = r.message.key === null ? 'NULL' : `'\\x${r.message.key.toString('hex')}'::bytea`
    if (since && since.epoch !== this.epoch) throw new SetBack('the offsets were read again')
    const results = await this.answer('claim an event', client.query(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
      SELECT ${since ? this.same(text, r, since) : 'NULL'},
        ${this.s}inbox_claim(${text(this.name)}, ${text(r.id)}, ${text(r.topic)}, ${Number(r.partition)}, ${key},
        ${text(r.source)}) AS state, pg_backend_pid() AS pid`)) as unknown as { rows: { state: Claim; pid: number }[] }[]
    return results[1]!.rows[0]!
  }

  /**
   * Begins a transaction and claims events in it, in their order. places: the indexes of those that the caller has the
   * effects of; the others are decided or behind. SetBack as claim; all are of one partition then.
   */
  async claimTogether(client: PoolClient, reads: Read[], since?: Since): Promise<{ places: number[]; pid: number }> {
    if (since && since.epoch !== this.epoch) throw new SetBack('the offsets were read again')
    const text = (value: string) => client.escapeLiteral(value)
    const { rows } = await this.answer('claim events', (async () => {
      await client.query('BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE')
      return await client.query(`SELECT ${since ? this.same(text, reads[0]!, since) : 'NULL'}, ${this.s}inbox_claim_together(
        $1, $2::text[], $3::text[], $4::integer[], $5::bytea[], $6::text[]) AS places, pg_backend_pid() AS pid`,
      [this.name, reads.map(r => r.id), reads.map(r => r.topic), reads.map(r => r.partition),
        reads.map(r => r.message.key), reads.map(r => r.source)])
    })())
    return { places: rows[0].places.map((place: number) => place - 1), pid: rows[0].pid }
  }

  /** An expression that fails in another database than the one that was read. Postgres plans it for each event. */
  private same(text: (value: string) => string, r: Read, { wrote }: Since): string {
    const { consumer, start, file } = this.known!
    let last = "'{}', '{}', '{}'"
    if (this.last) {
      const { id, source, anyState } = this.last
      const number = isUuid(id) ? '0' : `coalesce((SELECT s.source FROM ${this.s}inbox_source s WHERE s.name = ${text(source)}), -1)`
      last = `ARRAY[${number}]::smallint[], ARRAY[${text(isUuid(id) ? id.toLowerCase() : id)}], ARRAY[${anyState}]`
    }
    return `${this.s}inbox_same(${Number(consumer)}::smallint, ${text(this.name)}, ${text(start)}, ${text(file)}, ${last},
      ARRAY[${text(r.topic)}], ARRAY[${Number(r.partition)}], ARRAY[${wrote}::bigint])`
  }

  /** Notes what this process has committed. anyState: others may change the event's state. */
  committed(r: Read, anyState: boolean) {
    this.last = { id: r.id, source: r.source, anyState }
  }

  /** Begins an epoch: from here on the database is the one that is there now. */
  async begin(): Promise<void> {
    const { rows } = await this.answer('read the identity of the database', this.pool.query(`SELECT ${this.s}inbox_register($1) AS consumer,
      pg_postmaster_start_time()::text AS start, ${this.s}inbox_file() AS file`, [this.name]))
    this.known = rows[0]
    this.last = undefined
    this.epoch++
  }

  /** Begins a transaction and takes a parked event into it that is due. undefined: none is. */
  async take(client: PoolClient): Promise<{ due?: Due; pid: number }> {
    const results = await this.answer('take a parked event', client.query(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
      SELECT pg_backend_pid() AS pid; SELECT id, source_name, topic, partition, "offset", key, value, headers, type, attempts
      FROM ${this.s}inbox_take(${client.escapeLiteral(this.name)})`)) as unknown as { rows: any[] }[]
    const pid = results[1]!.rows[0].pid
    const row = results[2]!.rows[0]
    if (!row) return { pid }
    const original = await this.unicode(client) ? (text: string) => text : unescape
    const message = { topic: row.topic, partition: row.partition, offset: BigInt(row.offset), key: row.key,
      value: row.value, headers: mapValues(row.headers, original) }
    return { pid, due: { message, id: row.id, source: row.source_name, type: original(row.type), attempts: row.attempts } }
  }

  /** Parks an event that a claim called new, or one that is behind another of its key with a delay of null. */
  async park(on: Pool | PoolClient, r: Read, attempts: number, error: string, delayMs: number | null): Promise<boolean> {
    const fit = await this.fit(on)
    const { rows } = await this.answer('park an event', on.query(`SELECT ${this.s}inbox_park($1, $2, topic => $3,
      partition => $4, "offset" => $5, key => $6, value => $7, headers => $8, type => $9, error => $10, attempts => $11,
      next_at => now() + $12::float8 * interval '1 millisecond', source_name => $13) AS parked`,
    [this.name, r.id, r.topic, r.partition, r.offset, r.message.key, r.message.value,
      JSON.stringify(mapValues(r.headers, fit)), fit(r.type), fit(error), attempts, delayMs, r.source]))
    return rows[0].parked
  }

  /** Notes a failed attempt of a parked event. A delay of null makes it a dead letter. */
  async failed(on: Pool | PoolClient, r: Read, error: string, delayMs: number | null): Promise<boolean> {
    const { rows } = await this.answer('note a failed attempt', on.query(`SELECT ${this.s}inbox_failed($1, $2, $3,
      now() + $4::float8 * interval '1 millisecond', $5) AS noted`,
    [this.name, r.id, (await this.fit(on))(error), delayMs, r.source]))
    return rows[0].noted
  }

  /** Lets a parked event wait without counting an attempt. */
  async wait(r: Read, error: string, delayMs: number): Promise<void> {
    await this.answer('let an event wait', this.pool.query(`UPDATE ${this.s}inbox_parked p
      SET next_at = now() + $4::float8 * interval '1 millisecond', error = $5
      FROM ${this.s}inbox_identity($2, $3) i WHERE p.consumer = ${this.s}inbox_register($1) AND p.source = i.source
      AND p.event_id = i.event_id`, [this.name, r.id, r.source, delayMs, (await this.fit(this.pool))(error)]))
  }

  /** Makes an event a dead letter, parked or not. false: someone else has decided it. */
  async bury(
    r: Read, parked: boolean, error: string, kind: 'permanent' | 'exhausted' | 'process', since?: Since,
  ): Promise<boolean> {
    return await this.within('store a dead letter', r, since, async client => {
      const mine = (parked || await this.park(client, r, 0, error, 0)) && await this.failed(client, r, error, null)
      if (!mine) return false
      await client.query(`UPDATE ${this.s}inbox_dead d SET class = $4 FROM ${this.s}inbox_identity($2, $3) i
        WHERE d.consumer = ${this.s}inbox_register($1) AND d.source = i.source AND d.event_id = i.event_id`,
      [this.name, r.id, r.source, kind])
      await this.acquit(client, r)
      return true
    })
  }

  /** Parks an event whose effect was rolled back. false: someone else has decided it. */
  async parkFailed(r: Read, attempts: number, error: string, delayMs: number, since?: Since): Promise<boolean> {
    return await this.within('park an event', r, since, client => this.park(client, r, attempts, error, delayMs))
  }

  /** Runs work in a transaction, in the database that the caller has read its offset from. */
  private async within<T>(
    what: string, r: Read, since: Since | undefined, work: (client: PoolClient) => Promise<T>,
  ): Promise<T> {
    const client = await this.connect()
    let broken = true
    try {
      if (since && since.epoch !== this.epoch) throw new SetBack('the offsets were read again')
      const text = (value: string) => client.escapeLiteral(value)
      await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SELECT ${since ? this.same(text, r, since) : ''}`)
      const result = await work(client)
      await client.query('COMMIT')
      broken = false
      return result
    } catch (error) {
      if (error instanceof SetBack || error instanceof Unavailable) throw error
      return await this.answer(what, Promise.reject(error))
    } finally {
      client.release(broken)
    }
  }

  async done(client: PoolClient, r: Read): Promise<boolean> {
    const { rows } = await client.query(`SELECT ${this.s}inbox_done($1, $2, $3) AS done`, [this.name, r.id, r.source])
    return rows[0].done
  }

  /** What earlier processes noted of an event that they began: seen among others, and alone. */
  async suspicion(r: Read): Promise<{ seen: number; alone: number }> {
    const { rows } = await this.answer('read suspects', this.pool.query(`SELECT s.seen, s.alone FROM ${this.s}inbox_suspect s
      JOIN ${this.s}inbox_identity($2, $3) i ON s.source = i.source AND s.event_id = i.event_id
      WHERE s.consumer = ${this.s}inbox_register($1)`, [this.name, r.id, r.source]))
    return rows[0] ?? { seen: 0, alone: 0 }
  }

  /** Notes, in a transaction of its own, that this process begins an event. */
  async suspect(r: Read, alone: boolean): Promise<void> {
    await this.answer('note a suspect', this.pool.query(`INSERT INTO ${this.s}inbox_suspect AS s
      (consumer, source, event_id, seen, alone)
      SELECT ${this.s}inbox_register($1), i.source, i.event_id, 1 - $4::integer, $4::integer FROM ${this.s}inbox_identity($2, $3) i
      ON CONFLICT (consumer, source, event_id) DO UPDATE SET seen = s.seen + excluded.seen, alone = s.alone + excluded.alone`,
    [this.name, r.id, r.source, alone ? 1 : 0]))
  }

  /** Forgets that an event was begun: it is decided, and the process lives. */
  async acquit(on: Pool | PoolClient, r: Read): Promise<void> {
    await on.query(`DELETE FROM ${this.s}inbox_suspect s USING ${this.s}inbox_identity($2, $3) i
      WHERE s.consumer = ${this.s}inbox_register($1) AND s.source = i.source AND s.event_id = i.event_id`,
    [this.name, r.id, r.source])
  }

  /** Ends a session whose handler exceeded its time, so that none of its statements can commit. */
  async terminate(pid: number): Promise<void> {
    await this.answer('end a session', this.pool.query('SELECT pg_terminate_backend($1)', [pid]))
  }

  /**
   * Reads how far a partition is, and enters this process. unclean: the process that had it last did not release it.
   * Without a row it begins at the offset that is passed.
   */
  async starts(holder: string, places: Place[]): Promise<{ next: bigint; unclean: boolean }[]> {
    const starts = []
    for (const p of places) {
      const { rows } = await this.answer('read an offset', this.pool.query(`WITH me AS (SELECT ${this.s}inbox_register($1) AS c),
        before AS (SELECT o.* FROM ${this.s}inbox_offset o, me WHERE o.consumer = me.c AND o.topic = $2 AND o.partition = $3)
        INSERT INTO ${this.s}inbox_offset AS o (consumer, topic, partition, topic_id, next_offset, holder)
        SELECT c, $2, $3, '', $4, $5 FROM me
        ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now()
        RETURNING next_offset AS next, (SELECT holder <> $5 FROM before) AS unclean`,
      [this.name, p.topic, p.partition, p.next, holder]))
      starts.push({ next: BigInt(rows[0].next), unclean: rows[0].unclean === true })
    }
    return starts
  }

  /**
   * Writes how far partitions are, unless the database lacks events, which this process had decided: it was restored.
   * Returns how many it lacks. It throws SetBack if a partition has less than this process wrote.
   */
  async note(places: (Place & { wrote: bigint })[], events: Read[] = []): Promise<number> {
    // In one statement, as a restore can come between two. One look by the primary key for each event: a plan for all
    // of them can read the whole table.
    const { rows } = await this.answer('note offsets', this.pool.query(`WITH
      me AS (SELECT ${this.s}inbox_register($1) AS c),
      mine AS (SELECT * FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::bigint[])
        AS u (topic, partition, next, wrote)),
      lost AS MATERIALIZED (SELECT count(*)::integer AS n FROM me, unnest($6::text[], $7::text[]) AS u (id, source)
        WHERE (SELECT true FROM ${this.s}inbox_event e WHERE e.consumer = me.c
          AND e.source = CASE WHEN u.source IS NULL THEN 0
            ELSE (SELECT n.source FROM ${this.s}inbox_source n WHERE n.name = u.source) END
          AND e.event_id = u.id LIMIT 1) IS NOT TRUE),
      moved AS (UPDATE ${this.s}inbox_offset o SET next_offset = greatest(o.next_offset, u.next), at = now()
        FROM mine u, me, lost WHERE o.consumer = me.c AND o.topic = u.topic AND o.partition = u.partition
        AND o.next_offset >= u.wrote AND u.next > o.next_offset AND lost.n = 0)
      SELECT lost.n, (SELECT min(format('%s/%s: the database has offset %s, and this process wrote %s', u.topic,
          u.partition, coalesce(o.next_offset, 0), u.wrote))
        FROM me CROSS JOIN mine u LEFT JOIN ${this.s}inbox_offset o
        ON o.consumer = me.c AND o.topic = u.topic AND o.partition = u.partition
        WHERE coalesce(o.next_offset, 0) < u.wrote) AS behind FROM lost`,
    [this.name, places.map(p => p.topic), places.map(p => p.partition), places.map(p => p.next),
      places.map(p => p.wrote), events.map(r => isUuid(r.id) ? r.id.toLowerCase() : r.id),
      events.map(r => isUuid(r.id) ? null : r.source)]))
    if (rows[0].behind) throw new SetBack(rows[0].behind)
    return rows[0].n
  }

  async release(holder: string): Promise<void> {
    await this.answer('release partitions', this.pool.query(`UPDATE ${this.s}inbox_offset SET holder = NULL
      WHERE consumer = ${this.s}inbox_register($1) AND holder = $2`, [this.name, holder]))
  }

  async forget(keepMs: number): Promise<void> {
    await this.answer('forget ids', this.pool.query(`SELECT ${this.s}inbox_forget($1, $2::float8 * interval '1 millisecond',
      pause => '30 s') FROM ${this.s}inbox_register($1)`, [this.name, keepMs]))
  }

  /** Counts for gauges. */
  async counts(): Promise<{ parked: number; keys: number; dead: number }> {
    const { rows } = await this.answer('count', this.pool.query(`SELECT
      (SELECT count(*) FROM ${this.s}inbox_parked WHERE consumer = c)::integer AS parked,
      (SELECT count(DISTINCT (topic, partition, lane)) FROM ${this.s}inbox_parked WHERE consumer = c)::integer AS keys,
      (SELECT count(*) FROM ${this.s}inbox_dead WHERE consumer = c AND replayed_at IS NULL AND discarded_at IS NULL)::integer AS dead
      FROM ${this.s}inbox_register($1) c`, [this.name]))
    return rows[0]
  }

  private async answer<T>(what: string, statement: Promise<T>): Promise<T> {
    try {
      return await statement
    } catch (error) {
      if ((error as { code?: string }).code === 'IB001') throw new SetBack(describe(error))
      throw new Unavailable(`${what}: ${describe(error)}`, { cause: error })
    }
  }

  /** Whether the database holds every character. Where it does not, those beyond ASCII are stored with escapes. */
  private async unicode(on: Pool | PoolClient): Promise<boolean> {
    this.holdsAll ??= (await this.answer('read the encoding', on.query('SHOW server_encoding'))).rows[0].server_encoding === 'UTF8'
    return this.holdsAll
  }

  private async fit(on: Pool | PoolClient): Promise<(text: string) => string> {
    const whole = (text: string) => text.replaceAll('\0', '').toWellFormed()
    return await this.unicode(on) ? whole : text => escape(whole(text))
  }
}

const ignore = () => undefined

const escape = (text: string) => text.replace(/[^\x00-\x7e]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`)

const unescape = (text: string) => text.replace(/\\u([0-9a-f]{4})/g, (_, code) => String.fromCharCode(parseInt(code, 16)))

const mapValues = (headers: Record<string, string>, f: (text: string) => string) =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [f(name), f(value)]))
