// emit in an interactive transaction of Prisma on Postgres.
import { statement, type Event } from './index.js'

/** What `prisma.$transaction(async tx => …)` passes. */
export interface Transaction {
  $queryRawUnsafe(query: string, ...values: unknown[]): PromiseLike<unknown>
}

/** Writes an event and returns its id. */
export async function emit(tx: Transaction, event: Event): Promise<string> {
  const { id, text, values } = statement(event)
  // Prisma can't read a uuid that comes back without a column's type, so the answer is text.
  await tx.$queryRawUnsafe(text.replace(/^SELECT (.*)$/s, 'SELECT ($1)::text AS id'), ...values)
  return id
}
