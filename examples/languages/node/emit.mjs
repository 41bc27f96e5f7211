// Places an order and emits its event in one transaction, with node-postgres; ORDER names it. With FAIL set it fails
// behind that, and neither is there.
import pg from 'pg'

async function place(client, order, cents) {
  await client.query('BEGIN')
  try {
    await client.query("SELECT set_config('outbox.traceparent', $1, true)", [process.env.TRACEPARENT])
    await client.query('INSERT INTO orders (id, cents) VALUES ($1, $2)', [order, cents])
    const { rows } = await client.query('SELECT emit($1, $2, $3, $4, lock => true) AS id',
      ['order', order, 'OrderPlaced', JSON.stringify({ cents })])
    if (process.env.FAIL) throw new Error('no such customer')
    await client.query('COMMIT')
    return rows[0].id
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  }
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL })
await client.connect()
try {
  console.log(await place(client, process.env.ORDER, 9990))
} finally {
  await client.end()
}
