// The inbox's metrics with prom-client, by the names of the relay's dashboards and alerts.
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Inbox, Metrics } from './inbox.js'

/** Creates the metrics in a registry; pass the result as the inbox's option metrics, and call watch with the inbox. */
export function metrics(registry: Registry): Metrics & { watch(inbox: Inbox): void } {
  const registers = [registry]
  const processed = new Counter({ registers,
    name: 'consumer_events_processed_total', help: 'Events decided', labelNames: ['status', 'type']
  })
  const retried = new Counter({ registers,
    name: 'consumer_retry_attempts_total', help: 'Attempts after the first', labelNames: ['type']
  })
  const missing = new Counter({ registers,
    name: 'consumer_handler_not_found_total', help: 'Events of types without a handler', labelNames: ['type']
  })
  const took = new Histogram({ registers,
    name: 'consumer_process_duration_seconds', help: 'Claim to commit', labelNames: ['type']
  })
  const inflight = new Gauge({ registers, name: 'consumer_inflight', help: 'Handlers that run' })
  const last = new Gauge({ registers,
    name: 'consumer_last_processed_timestamp_seconds', help: 'When an event was decided last'
  })
  const lag = new Gauge({ registers,
    name: 'broker_consumer_lag', help: 'Messages not yet decided', labelNames: ['topic', 'partition']
  })
  const types = new Set<string>()
  return {
    processed(status, type) {
      processed.inc({ status, type })
      last.setToCurrentTime()
    },
    retried: type => retried.inc({ type }),
    handlerNotFound(type) {
      if (types.size < 50) types.add(type)
      missing.inc({ type: types.has(type) ? type : 'unknown' })
    },
    took: (type, seconds) => took.observe({ type }, seconds),
    inflight: change => inflight.inc(change),
    lag: (topic, partition, messages) => lag.set({ topic, partition }, messages),
    watch(inbox) {
      let reading: Promise<Counts | undefined> | undefined // of one scrape, which asks all gauges at once
      const read = () => reading ??= inbox.ledger.counts().catch(() => undefined).finally(() => { reading = undefined })
      const gauge = (name: string, help: string, of: (counts: Counts) => number) => new Gauge({ registers, name, help,
        async collect() {
          const counts = await read()
          if (counts) this.set(of(counts))
          else this.remove() // unknown is absent
        } })
      gauge('consumer_parked_events', 'Events that wait for another attempt', counts => counts.parked)
      gauge('consumer_parked_keys', 'Keys with events that wait', counts => counts.keys)
      gauge('consumer_dead_letters_open', 'Dead letters not yet replayed or discarded', counts => counts.dead)
    },
  }
}

interface Counts { parked: number; keys: number; dead: number }
