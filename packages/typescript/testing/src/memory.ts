import { Outage, Permanent, type Handler, type InboxEvent, type Outcome, type Tx } from '@cdc-relay/inbox'
import { randomUUID } from 'node:crypto'

export interface Delivery<T = unknown> {
  type: string
  payload: T | null
  key?: string | null
  id?: string
  headers?: Record<string, string>
}

interface Parked { event: InboxEvent; error: string }

/**
 * An inbox in memory: each id once, a failing event and what follows of its key wait, dead letters after some attempts.
 * Handlers get the transaction that the test passes; nothing is rolled back when one fails.
 */
export class MemoryInbox {
  readonly parked: Parked[] = []
  readonly dead: Parked[] = []
  private readonly handlers = new Map<string, Handler>()
  private readonly decided = new Set<string>()
  private offset = 0n

  constructor(private readonly options: { tx?: Tx; attempts?: number } = {}) {}

  on<T>(type: string, handler: Handler<T>): this {
    this.handlers.set(type, handler)
    return this
  }

  /** Hands an event in. */
  async deliver<T>(delivery: Delivery<T>): Promise<Outcome> {
    const { type, payload, key = null, id = randomUUID(), headers = {} } = delivery
    if (this.decided.has(id)) return 'duplicate'
    this.decided.add(id)
    const event: InboxEvent<T> = { id, type, key, payload, headers, source: '', aggregateType: '', topic: 'test',
      partition: 0, offset: this.offset++, attempt: 1, late: false, replay: false }
    if (key !== null && this.parked.some(p => p.event.key === key)) {
      this.parked.push({ event: { ...event, attempt: 0 }, error: '' })
      return 'parked'
    }
    return await this.attempt(event, () => this.parked.push({ event, error: '' }))
  }

  /** Tries the first parked event of each key once, whether it is due or not. */
  async retry(): Promise<Outcome[]> {
    const firsts = this.parked.filter((p, n) =>
      p.event.key === null || this.parked.findIndex(other => other.event.key === p.event.key) === n)
    const outcomes: Outcome[] = []
    for (const p of firsts) {
      p.event.attempt++
      const outcome = await this.attempt(p.event, () => undefined)
      if (outcome !== 'parked') this.parked.splice(this.parked.indexOf(p), 1)
      outcomes.push(outcome)
    }
    return outcomes
  }

  private async attempt(event: InboxEvent, park: () => void): Promise<Outcome> {
    const handler = this.handlers.get(event.type)
    if (!handler) return 'ignored'
    try {
      await handler(event, this.options.tx as Tx, new AbortController().signal)
      return 'done'
    } catch (cause) {
      const error = cause instanceof Error ? cause.message : String(cause)
      if (cause instanceof Permanent || (event.attempt >= (this.options.attempts ?? 5) && !(cause instanceof Outage))) {
        this.dead.push({ event, error })
        return 'dead'
      }
      if (cause instanceof Outage) event.attempt--
      park()
      return 'parked'
    }
  }
}
