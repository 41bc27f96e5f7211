import type { Pool, PoolClient } from 'pg'
import { Outage, Permanent, RetryAfter, SetBack, Unavailable, describe } from './errors.js'
import { Ledger, type Since } from './ledger.js'
import { decode, read, type InboxEvent, type Message, type Read } from './message.js'
import { Pace } from './pace.js'
import { Solitude } from './solitude.js'
import { guard, type Guard, type Tx } from './tx.js'

/** How an event was decided. parked: it is tried again; duplicate: it was decided before. */
export type Outcome = 'done' | 'ignored' | 'duplicate' | 'parked' | 'dead'

/** Has an event's effect through tx, and nowhere else: it runs again if the commit fails. */
export type Handler<T = any> = (event: InboxEvent<T>, tx: Tx, signal: AbortSignal) => Promise<unknown> | unknown

/** What is counted; `metrics` of @cdc-relay/inbox/prom-client implements it. */
export interface Metrics {
  processed(status: Exclude<Outcome, 'parked'>, type: string): void
  retried(type: string): void
  handlerNotFound(type: string): void
  took(type: string, seconds: number): void
  inflight(change: 1 | -1): void
  lag(topic: string, partition: number, messages: number): void
}

export interface Options {
  pool: Pool
  /** The permanent name of this consumer. */
  name: string
  /** Where `cdc-relay init --inbox` created the tables. Default: public. */
  schema?: string
  retry?: {
    /** Default: 5. */
    attempts?: number
    /** The first delay, doubled for each attempt. Default: 50 ms. */
    initialMs?: number
    /** Default: 5 min. */
    maxMs?: number
    /** Explicit delays instead. */
    scheduleMs?: number[]
  }
  /** How long a handler may take. Then its session is ended, and it counts as an attempt. Default: 30 s. */
  handlerTimeoutMs?: number
  /** What becomes of types without a handler. Default: ignore. */
  unknown?: 'ignore' | 'dead'
  /** Events in one transaction at most; if it fails, each goes by itself. Default: 100, or what takes 20 ms. */
  maxBatch?: number
  /** How long ids are kept: longer than the topics' retention. Default: 14 days. */
  keepMs?: number
  metrics?: Metrics
  log?: (level: 'info' | 'warn' | 'error', message: string, fields?: object) => void
}

interface Run { r: Read; attempt: number; parked: boolean; since?: Since | undefined }
interface Failure { cause: unknown; lost: boolean }

const mostLosses = 3 // sessions that an event may lose, with the server there, before that is its handler's fault
const mostAlone = 2 // deaths of processes while it ran alone
const rollbackWithinMs = 5_000
const longestTogetherMs = 1_000 // of handlers in one transaction, before its events go by themselves

/**
 * Decides events, each once: its effect, its place among the parked, or its dead letter commits together with its id.
 * Invariants: a handler runs only in the transaction that has claimed its event, and bookkeeping never does.
 */
export class Inbox {
  readonly ledger: Ledger
  readonly options: Options
  readonly pace: Pace
  private readonly handlers = new Map<string, Handler>()
  private readonly solitude = new Solitude()
  private readonly losses = new Map<string, number>()
  private readonly noted = new Set<string>()
  /** When the next event is due that this process has parked, in ms since 1970. */
  dueAt = Infinity

  constructor(options: Options) {
    const problems = []
    if (!options.pool?.connect) problems.push('pool must be a pg.Pool')
    if (!options.name) problems.push('name must be the permanent name of this consumer')
    const { keepMs, handlerTimeoutMs, maxBatch } = options
    for (const [key, value] of Object.entries({ ...options.retry, keepMs, handlerTimeoutMs, maxBatch })) {
      const negative = [value].flat().some(n => n !== undefined && !((n as number) >= 0))
      if (negative) problems.push(`${key} is ${value}, and must not be negative`)
    }
    if (options.pool?.options && options.pool.options.max < 3) problems.push('the pool needs max: 3 or more')
    if (problems.length > 0) throw new TypeError(`inbox: ${problems.join('; ')}`)
    this.options = options
    this.pace = new Pace(options.maxBatch ?? 100)
    options.pool.on('error', error => this.log('warn', `inbox: an idle session ended: ${error.message}`))
    this.ledger = new Ledger(options.pool, options.name, options.schema ?? 'public')
  }

  /** Registers the handler of a type of event. */
  on<T>(type: string, handler: Handler<T>): this {
    if (!type || typeof handler !== 'function') throw new TypeError('inbox: on needs a type and a handler')
    if (this.handlers.has(type)) throw new TypeError(`inbox: ${type} has a handler already`)
    this.handlers.set(type, handler)
    return this
  }

  get types(): number { return this.handlers.size }

  /**
   * Decides a message: when it returns, that is committed. It throws Unavailable if the database does not answer; hand
   * the message in again then. careful: an earlier process may have died of this message. With since it throws SetBack
   * if the database was restored.
   */
  async handle(message: Message, careful = false, since?: Since): Promise<Outcome> {
    const r = read(message)
    for (;;) {
      const outcome = await this.guarded(r, careful, undefined, () => this.claimed(r, since))
      if (outcome) return this.count(outcome, r)
    }
  }

  /** Decides messages in their order, as handle does; several in one transaction where that goes well. */
  async handleAll(messages: Message[]): Promise<Outcome[]> {
    const outcomes: Outcome[] = []
    while (outcomes.length < messages.length) {
      const some = messages.slice(outcomes.length, outcomes.length + this.pace.next())
      const decided = await this.together(some)
      for (const [n, m] of some.entries()) outcomes.push(decided[n] ?? await this.handle(m))
    }
    return outcomes
  }

  /**
   * Decides messages in one transaction, as far as that goes well. undefined: hand that one in by itself, in this order.
   * With since, which is for messages of one partition, it throws SetBack if the database was restored.
   */
  async together(messages: Message[], since?: Since): Promise<(Outcome | undefined)[]> {
    const reads = messages.map(read)
    const fits = (r: Read) => !r.problem && (this.handlers.has(r.type) || this.options.unknown !== 'dead')
    if (reads.length < 2 || !reads.every(fits)) return []
    const outcomes = await this.solitude.run(false, () => this.claimedTogether(reads, since))
    outcomes.forEach((outcome, n) => outcome && this.count(outcome, reads[n]!))
    return outcomes
  }

  /** Tries a parked event whose time has come. undefined: none has. */
  async retryDue(): Promise<Outcome | undefined> {
    const client = await this.ledger.connect()
    let taken
    try {
      taken = await this.ledger.take(client)
      if (!taken.due) {
        await client.query('ROLLBACK')
        client.release()
        return undefined
      }
    } catch (error) {
      client.release(true)
      throw error
    }
    const { due, pid } = taken
    const r = { ...read(due.message), id: due.id, source: due.source, type: due.type }
    this.options.metrics?.retried(this.label(r.type))
    let held = true
    const giveBack = () => {
      if (held) client.release(true)
      held = false
    }
    try {
      const outcome = await this.guarded(r, true, giveBack, async () => {
        held = false // effect gives it back
        return await this.effect(client, pid, { r, attempt: due.attempts + 1, parked: true })
      })
      if (outcome) return this.count(outcome, r)
    } finally {
      giveBack()
    }
    return await this.retryDue()
  }

  /**
   * Runs work beside others, or alone if processes died while they had the event. giveBack gives back the session that
   * has taken it, if it is parked. undefined: try again.
   */
  private async guarded(
    r: Read, careful: boolean, giveBack: (() => void) | undefined, work: () => Promise<Outcome | undefined>,
  ): Promise<Outcome | undefined> {
    if (!careful) return await this.solitude.run(false, work)
    const name = `${r.source} ${r.id}`
    const before = this.noted.has(name) ? { seen: 0, alone: 0 } : await this.ledger.suspicion(r)
    const suspected = before.seen + before.alone > 0
    return await this.solitude.run(suspected, async () => {
      if (before.alone >= mostAlone) {
        const error = `the process died ${before.seen + before.alone} times while it handled this event`
        this.log('error', `inbox: ${error}: it becomes a dead letter`, r)
        giveBack?.()
        return await this.ledger.bury(r, giveBack !== undefined, error, 'process') ? 'dead' : 'duplicate'
      }
      if (!this.noted.has(name)) await this.ledger.suspect(r, suspected)
      this.noted.add(name)
      const outcome = await work()
      if (outcome) {
        await this.ledger.acquit(this.options.pool, r).catch(() => undefined) // else it is handled alone next time
        this.noted.delete(name)
      }
      return outcome
    })
  }

  /** Claims an event and has its effect. */
  private async claimed(r: Read, since?: Since): Promise<Outcome | undefined> {
    const client = await this.ledger.connect()
    let claim
    try {
      claim = await this.ledger.claim(client, r, since)
      if (claim.state !== 'new') {
        if (claim.state === 'behind') await this.ledger.park(client, r, 0, '', null)
        await client.query('COMMIT')
        client.release()
        if (since && claim.state === 'behind') this.ledger.committed(r, true)
        return claim.state === 'behind' ? 'parked' : 'duplicate'
      }
    } catch (error) {
      client.release(true)
      throw error instanceof Unavailable || error instanceof SetBack ? error : new Unavailable(describe(error), { cause: error })
    }
    return await this.effect(client, claim.pid, { r, attempt: 1, parked: false, since })
  }

  /** Claims events, and has the effects of those that are new, all or none. */
  private async claimedTogether(reads: Read[], since?: Since): Promise<(Outcome | undefined)[]> {
    const outcomes: (Outcome | undefined)[] = []
    const guards: Guard[] = []
    const began = performance.now()
    let client: PoolClient | undefined
    let pid = 0
    const changed = () => guards.some(tx => tx.changed())
    try {
      client = await this.ledger.connect()
      const claim = await this.ledger.claimTogether(client, reads, since)
      pid = claim.pid
      for (const n of claim.places) {
        if (guards.at(-1)?.altered()) throw new Error('a handler changes settings, and other events are in its transaction')
        if (performance.now() - began > longestTogetherMs) throw new Error('the handlers take too long for one transaction')
        guards.push(guard(client))
        outcomes[n] = await this.call(reads[n]!, 1, guards.at(-1)!)
        guards.at(-1)!.close()
      }
      await commit(client)
      client.release(changed())
      if (since && claim.places.length > 0) this.ledger.committed(reads[claim.places.at(-1)!]!, false)
      this.pace.went(reads.length, performance.now() - began)
      return outcomes
    } catch (cause) {
      guards.forEach(tx => tx.close())
      if (client) await this.rollBack(client, pid, changed(), cause)
      if (cause instanceof SetBack) throw cause
      this.log('info', `inbox: ${reads.length} events go by themselves: ${describe(cause)}`)
      this.pace.failed(reads.length)
      return []
    }
  }

  /** Runs the handler in the client's transaction and ends it. It gives the client back. */
  private async effect(client: PoolClient, pid: number, run: Run): Promise<Outcome | undefined> {
    const { r } = run
    const tx = guard(client)
    try {
      const outcome = await this.call(r, run.attempt, tx)
      if (run.parked && !await this.ledger.done(client, r)) throw new Error('the event is not parked any more')
      await commit(client)
      tx.close()
      client.release(tx.changed())
      this.losses.delete(r.id)
      if (run.since) this.ledger.committed(r, false)
      return outcome
    } catch (cause) {
      tx.close()
      return await this.settle(run, { cause, lost: await this.rollBack(client, pid, tx.changed(), cause) })
    }
  }

  /** Runs the handler of an event, if there is one, within its time. */
  private async call(r: Read, attempt: number, tx: Guard): Promise<'done' | 'ignored'> {
    const controller = new AbortController()
    const began = performance.now()
    let timer: NodeJS.Timeout | undefined
    this.options.metrics?.inflight(1)
    try {
      const handler = this.handlerOf(r)
      const event = decode(r, attempt)
      if (!handler) return 'ignored'
      const limit = this.options.handlerTimeoutMs ?? 30_000
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new TimedOut(`the handler took more than ${limit} ms`)), limit)
      })
      await Promise.race([(async () => handler(event, tx.client, controller.signal))(), late])
      tx.check()
      return 'done'
    } catch (cause) {
      tx.close()
      controller.abort(cause)
      throw cause
    } finally {
      clearTimeout(timer)
      this.options.metrics?.inflight(-1)
      this.options.metrics?.took(this.label(r.type), (performance.now() - began) / 1000)
    }
  }

  /** Ends a failed transaction, and reports whether its session was lost. The error's type says nothing about that. */
  private async rollBack(client: PoolClient, pid: number, changed: boolean, cause: unknown): Promise<boolean> {
    if (cause instanceof TimedOut) {
      client.release(true)
      await this.ledger.terminate(pid)
      return false
    }
    let timer: NodeJS.Timeout | undefined
    try {
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new TimedOut('the rollback waits for a statement of the handler')), rollbackWithinMs)
      })
      await Promise.race([client.query('ROLLBACK'), late])
      client.release(changed)
      return false
    } catch (error) {
      client.release(true)
      if (!(error instanceof TimedOut)) return true
      await this.ledger.terminate(pid)
      return false
    } finally {
      clearTimeout(timer)
    }
  }

  /** Decides what becomes of an event that failed. undefined: it is to be tried at once. */
  private async settle(run: Run, { cause, lost }: Failure): Promise<Outcome | undefined> {
    const { r, attempt, parked, since } = run
    if (lost) {
      const losses = (this.losses.get(r.id) ?? 0) + 1
      this.losses.set(r.id, losses)
      if (losses < mostLosses) return undefined
    }
    this.losses.delete(r.id)
    const error = describe(cause)
    if (cause instanceof Permanent || (attempt >= this.attempts && !(cause instanceof Outage))) {
      const mine = await this.ledger.bury(r, parked, error, cause instanceof Permanent ? 'permanent' : 'exhausted', since)
      if (mine && since) this.ledger.committed(r, true)
      if (mine) this.log('error', `inbox: event moved to the dead letters: ${error}`, r)
      return mine ? 'dead' : 'duplicate'
    }
    const delay = cause instanceof RetryAfter ? cause.delayMs : cause instanceof Outage ? 1_000 : this.delay(attempt)
    this.dueAt = Math.min(this.dueAt, Date.now() + delay)
    this.log('warn', `inbox: ${cause instanceof Outage ? 'outage' : `attempt ${attempt}`}: ${error}`, r)
    if (!parked) {
      const mine = await this.ledger.parkFailed(r, cause instanceof Outage ? 0 : attempt, error, delay, since)
      if (mine && since) this.ledger.committed(r, true)
      return mine ? 'parked' : 'duplicate'
    }
    if (cause instanceof Outage) await this.ledger.wait(r, error, delay)
    else if (!await this.ledger.failed(this.options.pool, r, error, delay)) return 'duplicate'
    return 'parked'
  }

  private get attempts() {
    const { scheduleMs, attempts = 5 } = this.options.retry ?? {}
    return scheduleMs ? scheduleMs.length + 1 : attempts
  }

  private delay(attempt: number): number {
    const { initialMs = 50, maxMs = 300_000, scheduleMs } = this.options.retry ?? {}
    const jitter = 0.8 + Math.random() * 0.4
    return scheduleMs?.[attempt - 1] ?? Math.min(initialMs * 2 ** (attempt - 1) * jitter, maxMs)
  }

  private handlerOf(r: Read): Handler | undefined {
    const handler = this.handlers.get(r.type)
    if (!handler && !r.problem) {
      this.options.metrics?.handlerNotFound(r.type)
      if (this.options.unknown === 'dead') throw new Permanent(`no handler for type ${JSON.stringify(r.type)}`)
    }
    return handler
  }

  private label(type: string) { return this.handlers.has(type) ? type : 'unknown' }

  private count(outcome: Outcome, r: Read): Outcome {
    if (outcome !== 'parked') this.options.metrics?.processed(outcome, this.label(r.type))
    return outcome
  }

  /** Logs a line about an event. */
  log(level: 'info' | 'warn' | 'error', message: string, r?: Read) {
    const event = r && { id: r.id, type: r.type, topic: r.topic, partition: r.partition, offset: String(r.offset) }
    const fields = { consumer: this.options.name, ...event }
    if (this.options.log) this.options.log(level, message, fields)
    else if (level !== 'info') console.error(message, JSON.stringify(fields))
  }
}

async function commit(client: PoolClient) {
  const { command } = await client.query('COMMIT')
  if (command !== 'COMMIT') throw new Error('a statement failed and the handler went on, so Postgres rolled back')
}

class TimedOut extends Error {}
