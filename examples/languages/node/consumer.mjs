// Handles each event once, in its key's order, with node-postgres. Messages come as lines of JSON on standard input:
// put your Kafka client's loop there, and commit its offset behind what was handled.
import readline from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import pg from 'pg'

const name = 'billing'
const maxAttempts = 5

async function effect(client, key, payload) {
  if (payload.fails) throw new Error('no such customer')
  await client.query('INSERT INTO invoice (customer, seq) VALUES ($1, $2)', [key, payload.seq])
}

// within runs a transaction. Whatever fails is the event's fault, unless the session is lost: then it comes again.
async function within(client, work, failed) {
  try {
    await client.query('BEGIN')
    const result = await work()
    const { command } = await client.query('COMMIT')
    if (command !== 'COMMIT') throw new Error('a statement failed and the handler went on, so Postgres rolled back')
    return result
  } catch (error) {
    await client.query('ROLLBACK') // fails without a session
    await failed(error)
    return true
  }
}

// handle decides a message: it has had its effect, or is parked, when this returns.
async function handle(client, m) {
  const key = Buffer.from(m.key)
  const park = (error, seconds) => client.query(
    `SELECT inbox_park($1, $2, topic => $3, partition => $4, "offset" => $5, key => $6, value => $7, error => $8,
     next_at => now() + $9::float8 * interval '1 second')`,
    [name, m.id, m.topic, m.partition, m.offset, key, Buffer.from(JSON.stringify(m.payload)), error, seconds])
  await within(client, async () => {
    const { rows } = await client.query('SELECT inbox_claim($1, $2, $3, $4, $5) AS state',
      [name, m.id, m.topic, m.partition, key])
    if (rows[0].state === 'new') await effect(client, m.key, m.payload)
    if (rows[0].state === 'behind') await park('', null) // no time: it waits for the one before it
  }, error => park(error.message, 0.05))
}

// retry tries a parked event whose time has come, and returns whether there was one.
async function retry(client) {
  let due
  return within(client, async () => {
    const { rows } = await client.query('SELECT id, key, value, attempts FROM inbox_take($1)', [name])
    if (rows.length === 0) return false
    due = rows[0]
    await effect(client, due.key.toString(), JSON.parse(due.value))
    await client.query('SELECT inbox_done($1, $2)', [name, due.id])
    return true
  }, error => {
    if (!due) throw error
    return client.query(`SELECT inbox_failed($1, $2, $3, now() + $4::float8 * interval '1 second')`,
      [name, due.id, error.message, due.attempts + 1 < maxAttempts ? 0.05 : null]) // null: a dead letter
  })
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL })
await client.connect()
for await (const line of readline.createInterface({ input: process.stdin })) {
  await handle(client, JSON.parse(line))
  while (await retry(client));
}
while ((await client.query('SELECT FROM inbox_parked LIMIT 1')).rowCount > 0) { // one that goes on looks now and then
  if (!await retry(client)) await setTimeout(10)
}
await client.end()
