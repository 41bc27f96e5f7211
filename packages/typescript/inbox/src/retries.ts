import { describe } from './errors.js'
import type { Inbox } from './inbox.js'

const retryEveryMs = 250 // how often it looks for events that another process has parked
const forgetEveryMs = 60_000
const twoWeeksMs = 14 * 86_400_000

/** Tries parked events when they are due, and forgets old ids, until stop. Readers of a broker start it. */
export function startRetries(inbox: Inbox): { stop(): Promise<void> } {
  let stopping = false
  let wake = () => {}
  const sleep = (ms: number) => stopping ? Promise.resolve() : new Promise<void>(resolve => {
    const timer = setTimeout(resolve, ms)
    wake = () => { clearTimeout(timer); resolve() }
  })
  const work = async () => {
    let forgotAt = Date.now()
    while (!stopping) {
      try {
        if (await inbox.retryDue() !== undefined) continue
        if (Date.now() - forgotAt > forgetEveryMs) {
          forgotAt = Date.now()
          await inbox.ledger.forget(inbox.options.keepMs ?? twoWeeksMs)
        }
      } catch (error) {
        inbox.log('error', `inbox: ${describe(error)}`)
        await sleep(1_000)
      }
      const due = inbox.dueAt
      if (due <= Date.now()) inbox.dueAt = Infinity
      await sleep(Math.max(5, Math.min(due - Date.now(), retryEveryMs)))
    }
  }
  const running = work()
  return {
    async stop() {
      stopping = true
      wake()
      await running
    },
  }
}
