// For tests of code that emits and handles events, with any test runner.
import { isDeepStrictEqual } from 'node:util'

export { MemoryInbox, type Delivery } from './memory.js'
export { Sandbox, type Published } from './sandbox.js'

/** A transaction or client of node-postgres that sees the outbox. */
export interface Reader {
  query(text: string, values: unknown[]): Promise<{ rows: any[] }>
}

export interface Expected {
  type: string
  /** The aggregate's id. */
  key?: string
  /** Fields that the payload must have, with these values. */
  match?: Record<string, unknown>
}

interface Row { type: string; key: string; payload: any }

/** Throws unless the outbox, as the transaction sees it, has such an event. Returns its payload. */
export async function assertEmitted(tx: Reader, expected: Expected, table = 'outbox_events'): Promise<any> {
  const rows = await emitted(tx, table)
  const found = rows.find(row => row.type === expected.type && (expected.key === undefined || row.key === expected.key) &&
    Object.entries(expected.match ?? {}).every(([name, value]) => isDeepStrictEqual(row.payload?.[name], value)))
  if (!found) throw new Error(`no event ${JSON.stringify(expected)} was emitted; the outbox has ${JSON.stringify(rows)}`)
  return found.payload
}

/** Throws if the outbox, as the transaction sees it, has an event, or one of the type. */
export async function noEventEmitted(tx: Reader, type?: string, table = 'outbox_events'): Promise<void> {
  const rows = (await emitted(tx, table)).filter(row => type === undefined || row.type === type)
  if (rows.length > 0) throw new Error(`no event should be emitted, but the outbox has ${JSON.stringify(rows)}`)
}

async function emitted(tx: Reader, table: string): Promise<Row[]> {
  const { rows } = await tx.query(`SELECT event_type AS type, aggregate_id AS key, payload FROM ${table} ORDER BY id`, [])
  return rows
}
