// The contract's driver: commands as lines of JSON on standard input, one answer each on standard output. The judge is
// test/packages in the product's Go tests; packages/contract/README.md lists the commands.
import readline from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { emit } from '@cdc-relay/emit'
import { emit as emitDrizzle } from '@cdc-relay/emit/drizzle'
import { emit as emitKysely } from '@cdc-relay/emit/kysely'
import { Inbox, Outage, Permanent, RetryAfter } from '@cdc-relay/inbox'
import { run } from '@cdc-relay/inbox/kafkajs'
import { MemoryInbox, Sandbox, assertEmitted, noEventEmitted } from '@cdc-relay/testing'

const url = process.env.DATABASE_URL
let pool, inbox, running, registry

/** Ways to fail, by the name that a payload has in its field fails. */
const failures = {
  error: () => { throw new Error('no such customer') },
  'no error': () => { throw 'no such customer' },
  permanent: () => { throw new Permanent('never') },
  outage: () => { throw new Outage('the bank is away') },
  later: () => { throw new RetryAfter(30, 'come back') },
  'like a lost connection': () => { throw Object.assign(new Error('Connection terminated unexpectedly'), { code: 'ECONNRESET' }) },
  cancelled: () => { throw new DOMException('This operation was aborted', 'AbortError') },
  swallowed: (event, tx) => tx.query('SELECT 1 / 0').catch(() => undefined),
  unique: (event, tx) => tx.query('INSERT INTO once VALUES (1), (1)'),
  rollback: (event, tx) => tx.query('ROLLBACK'),
  commit: (event, tx) => tx.query('INSERT INTO scratch VALUES (1); COMMIT'),
  'rollback swallowed': async (event, tx) => { try { await tx.query('ROLLBACK') } catch {} },
  slow: () => sleep(60_000),
  'slow statement': (event, tx) => tx.query('SELECT pg_sleep(60)'),
  'ends its session': (event, tx) => tx.query('SELECT pg_terminate_backend(pg_backend_pid())'),
  setting: (event, tx) => tx.query("SET lock_timeout = '1ms'; SET search_path = nowhere, public"),
  'setting of the transaction': (event, tx) => tx.query('SET LOCAL search_path = nowhere, public'),
  quoted: (event, tx) => tx.query(`DO $x$ BEGIN PERFORM 1; END $x$; SELECT 'a''; COMMIT; b', E'\\'; COMMIT; c' AS "; ROLLBACK;", $$; COMMIT$$
    -- ; COMMIT
    /* ; COMMIT */`),
  death: () => process.kill(process.pid, 'SIGKILL'),
}

const insert = (tx, ...values) =>
  tx.query('INSERT INTO effect (id, key, n, attempt, length) VALUES ($1, $2, $3, $4, $5)', values)

async function effect(event, tx) {
  const { n = null, fails, until = Infinity } = event.payload ?? {}
  await insert(tx, event.id, event.key, n, event.attempt, JSON.stringify(event.payload)?.length ?? null)
  if (!fails || event.attempt > until || event.replay) return
  if ((await tx.query('SELECT FROM fixed')).rowCount === 0) await failures[fails](event, tx)
}

/** Each emitter takes a function that gets emit and sql, and runs in a transaction. */
const emitters = {
  async pg(work) {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      const result = await work(event => emit(client, event), text => client.query(text))
      await client.query('COMMIT')
      return result
    } catch (error) {
      await client.query('ROLLBACK')
      throw error
    } finally {
      client.release()
    }
  },
  async kysely(work) {
    const { Kysely, PostgresDialect, CompiledQuery } = await import('kysely')
    return await new Kysely({ dialect: new PostgresDialect({ pool }) }).transaction().execute(tx =>
      work(event => emitKysely(tx, event), text => tx.executeQuery(CompiledQuery.raw(text))))
  },
  async drizzle(work) {
    const { drizzle } = await import('drizzle-orm/node-postgres')
    const { sql } = await import('drizzle-orm')
    return await drizzle(pool).transaction(tx => work(event => emitDrizzle(tx, event), text => tx.execute(sql.raw(text))))
  },
  async typeorm(work) {
    await import('reflect-metadata')
    const { DataSource } = await import('typeorm')
    const source = await new DataSource({ type: 'postgres', url }).initialize()
    try {
      return await source.transaction(tx => work(event => emit(tx, event), text => tx.query(text)))
    } finally {
      await source.destroy()
    }
  },
}

const commands = {
  async open({ options = {}, dieAt, metrics: wanted }) {
    await pool?.end()
    pool = new pg.Pool({ connectionString: url, max: 6 })
    if (dieAt) dieBefore(dieAt)
    const { Registry } = await import('prom-client')
    const { metrics } = await import('@cdc-relay/inbox/prom-client')
    registry = new Registry()
    const counted = wanted && metrics(registry)
    inbox = new Inbox({ pool, ...counted && { metrics: counted }, name: 'billing', log: (level, message) => console.error(level, message), ...options, retry: { attempts: 3, initialMs: 20, maxMs: 100, ...options.retry } })
    inbox.on('Effect', effect)
    counted?.watch(inbox)
    return { emitters: Object.keys(emitters) }
  },
  async emit({ with: name = 'pg', steps, fails }) {
    const ids = []
    try {
      await emitters[name](async (emitEvent, sql) => {
        for (const step of steps) {
          if (step.sql) await sql(step.sql)
          else ids.push(await emitEvent(typeof step.event.payload?.bytes === 'string'
            ? { ...step.event, payload: Buffer.from(step.event.payload.bytes) } : step.event))
        }
        if (fails) throw new Error(fails)
      })
    } catch (error) {
      return { error: error.message }
    }
    return { count: ids.length, distinct: new Set(ids).size }
  },
  async handle({ message }) {
    try {
      return { outcome: await inbox.handle(received(message), message.careful) }
    } catch (error) {
      return { error: `${error.name}: ${error.message}` }
    }
  },
  async handleAll({ messages }) {
    return { outcomes: (await inbox.handleAll(messages.map(received))).join(' ') }
  },
  async kit({ deliver }) {
    const kit = new MemoryInbox({ attempts: 3 }).on('Effect', async event => {
      const { fails, until = Infinity } = event.payload ?? {}
      if (fails && event.attempt <= until) await failures[fails](event)
    })
    const outcomes = []
    for (const { type = 'Effect', value = null, key, id } of deliver) outcomes.push(await kit.deliver({ type, payload: value, key, id }))
    const retried = [await kit.retry(), await kit.retry()]
    await emitters.pg(async (emitEvent, sql) => {
      const tx = { query: sql }
      await noEventEmitted(tx)
      await refused(() => assertEmitted(tx, { type: 'OrderPlaced' }))
      await emitEvent({ aggregateType: 'order', aggregateId: '42', type: 'OrderPlaced', payload: { cents: 9990 } })
      await assertEmitted(tx, { type: 'OrderPlaced', key: '42', match: { cents: 9990 } })
      for (const wrong of [{ type: 'Other' }, { type: 'OrderPlaced', key: '43' }, { type: 'OrderPlaced', match: { cents: 1 } }]) {
        await refused(() => assertEmitted(tx, wrong))
      }
      await noEventEmitted(tx, 'Other')
      await refused(() => noEventEmitted(tx, 'OrderPlaced'))
      await sql('DELETE FROM outbox_events')
    })
    return { outcomes: outcomes.join(' '), retried: retried.map(some => some.join(' ')).join(', '), parked: kit.parked.length,
      dead: kit.dead.map(d => `${d.event.id} ${d.error}`).join(' ') }
  },
  async sandbox({ program }) {
    const sandbox = await Sandbox.start(program)
    try {
      const client = new pg.Client(sandbox.url)
      await client.connect()
      for (const [n, end] of ['COMMIT', 'ROLLBACK', 'COMMIT'].entries()) {
        await client.query('BEGIN')
        await emit(client, { aggregateType: 'order', aggregateId: '42', type: 'OrderPlaced', payload: { n } })
        await client.query(end)
      }
      await client.end()
      const second = await sandbox.published({ type: 'OrderPlaced', key: '42', match: { n: 2 } })
      const first = await sandbox.published({ type: 'OrderPlaced' })
      await refused(() => sandbox.published({ type: 'OrderPlaced', match: { n: 1 } }, 100))
      return { published: [first, second].map(m => `${m.topic} ${m.key} ${m.value.n}`).join(', ') }
    } finally {
      await sandbox.close()
    }
  },
  async retry({ until = 'quiet' }) {
    const outcomes = []
    while (true) {
      const outcome = await inbox.retryDue()
      if (outcome) outcomes.push(outcome)
      else if (until === 'quiet' && await waiting()) await sleep(5)
      else break
    }
    return { outcomes: outcomes.join(' ') }
  },
  async run({ broker = 'kafka', brokers, url, topics, group, workers }) {
    if (broker !== 'kafka') running = await sources[broker](url, topics, workers)
    else running = await run(inbox, { kafka: await client(brokers), topics, groupId: group, workers, consumer: timing })
    return {}
  },
  async loop({ brokers, topics, group, workers }) {
    const consumer = (await client(brokers)).consumer({ ...timing, groupId: group })
    await consumer.connect()
    await consumer.subscribe({ topics, fromBeginning: true })
    await consumer.run({ partitionsConsumedConcurrently: workers, eachMessage: ({ message }) => bare(message) })
    running = { stop: () => consumer.disconnect() }
    return {}
  },
  async metrics() { return { text: await registry.metrics() } },
  async stop() {
    await running?.stop()
    await pool.end()
    return {}
  },
}

/** A message as a command describes it. */
function received(m) {
  const key = m.key === undefined || m.key === null ? null : Buffer.from(m.key)
  const value = m.hex !== undefined ? Buffer.from(m.hex, 'hex') : m.size ? Buffer.from(JSON.stringify({ n: m.size, fill: 'x'.repeat(m.size) }))
    : m.value === undefined ? null : Buffer.from(JSON.stringify(m.value))
  const headers = { event_type: 'Effect', ...m.id !== undefined && { id: m.id }, ...m.headers }
  for (const name in headers) if (headers[name] === null) delete headers[name]
  return { topic: m.topic, partition: m.partition, offset: BigInt(m.offset), key, value, headers }
}

/** Sees that an assertion fails. */
async function refused(check) {
  try {
    await check()
  } catch {
    return
  }
  throw new Error('an assertion of the test kit holds that should not')
}

/** Ways to read other brokers than Kafka. */
const sources = {
  async nats(url, subjects, workers) {
    const { connect } = await import('@nats-io/transport-node')
    const { run } = await import('@cdc-relay/inbox/nats')
    return await run(inbox, { connection: await connect({ servers: url, maxReconnectAttempts: -1 }), subjects, workers })
  },
  async 'redis-stream'(url, streams, workers) {
    const { Redis } = await import('ioredis')
    const { run } = await import('@cdc-relay/inbox/ioredis')
    return await run(inbox, { redis: new Redis(url), streams, workers })
  },
  async rabbitmq(url, queues, workers) {
    const amqp = await import('amqplib')
    const { run } = await import('@cdc-relay/inbox/amqplib')
    return await run(inbox, { connect: () => amqp.connect(url), queues, workers })
  },
  async bullmq(url, queues, workers) {
    const { Redis } = await import('ioredis')
    const { run } = await import('@cdc-relay/inbox/bullmq')
    const connection = new Redis(url, { maxRetriesPerRequest: null })
    return await run(inbox, { connection, queues, workers, lockDurationMs: 2_000 })
  },
}

const timing = { sessionTimeout: 6_000, heartbeatInterval: 500, rebalanceTimeout: 6_000, maxWaitTimeInMs: 200 }

async function client(brokers) {
  const { Kafka, logLevel } = await import('kafkajs')
  return new Kafka({ brokers, clientId: 'driver', logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50, maxRetryTime: 1_000, retries: 20 } })
}

/** Has the effect of a message without the inbox: at least once, and a failure stops its partition. */
async function bare({ key, value, headers }) {
  const payload = JSON.parse(value)
  const tx = await pool.connect()
  try {
    await tx.query('BEGIN')
    await insert(tx, headers.id.toString(), key?.toString(), payload.n, 1, JSON.stringify(payload).length)
    await tx.query('COMMIT')
  } catch (error) {
    await tx.query('ROLLBACK')
    throw error
  } finally {
    tx.release()
  }
}

const waiting = async () => (await pool.query('SELECT FROM inbox_parked LIMIT 1')).rowCount > 0

/** Ends the process before the nth message to a server of the inbox's statements. */
function dieBefore(n) {
  const query = pg.Client.prototype.query
  pg.Client.prototype.query = function (...args) {
    if (--n === 0) process.kill(process.pid, 'SIGKILL')
    return query.apply(this, args)
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  let answer
  try {
    answer = await commands[command.op](command)
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` }
  }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
