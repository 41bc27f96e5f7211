// emit in a transaction of Kysely on Postgres.
import { CompiledQuery, type Transaction } from 'kysely'
import { statement, type Event } from './index.js'

/** Writes an event and returns its id. */
export async function emit<DB>(tx: Transaction<DB>, event: Event): Promise<string> {
  const { id, text, values } = statement(event)
  await tx.executeQuery(CompiledQuery.raw(text, values))
  return id
}
