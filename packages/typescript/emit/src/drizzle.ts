// emit in a transaction of Drizzle on Postgres.
import { sql, type SQL } from 'drizzle-orm'
import { statement, type Event } from './index.js'

/** What `db.transaction` passes, with any driver of Postgres. */
export interface Transaction {
  execute(query: SQL): PromiseLike<unknown>
}

/** Writes an event and returns its id. */
export async function emit(tx: Transaction, event: Event): Promise<string> {
  const { id, text, values } = statement(event)
  const parts = text.split(/\$\d/)
  const query = sql.join(parts.flatMap((part, n) => n === 0 ? [sql.raw(part)] : [sql`${values[n - 1]}`, sql.raw(part)]))
  await tx.execute(query)
  return id
}
