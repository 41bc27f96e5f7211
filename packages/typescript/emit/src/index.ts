// Writes events into the outbox, in the transaction that makes them true: one call of the SQL function emit, which
// `cdc-relay init --emit` creates. It neither begins nor ends a transaction.
import { randomFillSync } from 'node:crypto'

/** One row for the outbox. The aggregate's type chooses the topic; events of one aggregate keep the order of commits. */
export interface Event {
  /** A uuid. Default: a new one of version 7. */
  id?: string
  aggregateType: string
  aggregateId: string
  type: string
  /** Encoded as JSON. undefined and null: a tombstone. Bytes are refused: JSON holds them only as base64. */
  payload?: unknown
  headers?: Record<string, string>
  /**
   * Locks the aggregate until the commit, so that its events are published in the order of what they describe. Use it
   * if the event depends on state that other transactions change.
   */
  lock?: boolean
}

/** A transaction of node-postgres (a Client after BEGIN) or TypeORM (an EntityManager or QueryRunner). */
export interface Transaction {
  query(text: string, values: unknown[]): Promise<unknown>
}

/** The call for adapters: its parameters are text, so that every driver can bind them. */
export interface Statement {
  id: string
  text: string
  values: [string, string, string, string | null, string | null, boolean, string]
}

const call = `SELECT emit(aggregate_type => $1::text, aggregate_id => $2::text, event_type => $3::text,
  payload => $4::text::jsonb, headers => $5::text::jsonb, lock => $6::boolean, id => $7::text::uuid)`

/** Writes an event and returns its id. Pass the transaction that changes what the event describes. */
export async function emit(tx: Transaction, event: Event): Promise<string> {
  if ('totalCount' in tx && 'idleCount' in tx) {
    throw new TypeError('emit got a pool, which would write the event outside your transaction: ' +
      'pass the client that ran BEGIN')
  }
  const { id, text, values } = statement(event)
  await tx.query(text, values)
  return id
}

/** Checks an event and returns the call that writes it. */
export function statement(event: Event): Statement {
  if (!event.aggregateType || !event.type) {
    throw new TypeError('emit: an event needs an aggregateType and a type')
  }
  if (typeof event.aggregateId !== 'string') {
    throw new TypeError(`emit ${event.type}: aggregateId must be a string, got ${typeof event.aggregateId}`)
  }
  const id = event.id || newId()
  const headers = event.headers && Object.keys(event.headers).length > 0 ? JSON.stringify(event.headers) : null
  return {
    id,
    text: call,
    values: [event.aggregateType, event.aggregateId, event.type, encode(event), headers, event.lock ?? false, id],
  }
}

function encode({ type, payload }: Event): string | null {
  if (payload === undefined || payload === null) return null
  if (ArrayBuffer.isView(payload) || payload instanceof ArrayBuffer) {
    throw new TypeError(`emit ${type}: the payload is bytes, which JSON can hold only as base64: ` +
      'pass an object, or put the encoded bytes into a field')
  }
  const text = JSON.stringify(payload) as string | undefined
  if (text === undefined) throw new TypeError(`emit ${type}: JSON has no form for a ${typeof payload}`)
  return text
}

/** A uuid of version 7: nearly in the order of time, so that an index of them fills page by page. */
export function newId(): string {
  const b = randomFillSync(Buffer.alloc(16), 6)
  b.writeUIntBE(Date.now(), 0, 6)
  b[6] = (b[6]! & 0x0f) | 0x70
  b[8] = (b[8]! & 0x3f) | 0x80
  return b.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}
