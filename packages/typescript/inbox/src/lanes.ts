import type { Message } from './message.js'

/** Messages of one key go in order; those without a key have none. */
export function lanesOf(messages: Message[]): Message[][] {
  const lanes = new Map<string, Message[]>()
  for (const m of messages) {
    const name = m.key === null ? `o${m.offset}` : `k${m.key.toString('latin1')}`
    const lane = lanes.get(name)
    if (lane) lane.push(m)
    else lanes.set(name, [m])
  }
  return Array.from(lanes.values())
}

/**
 * Has work decide messages in portions, of each lane in order, so many portions at once. size is how many messages the
 * next portion has at most.
 */
export async function inPortions(
  lanes: Message[][], workers: number, size: () => number, work: (portion: Message[]) => Promise<void>,
): Promise<void> {
  await Promise.all(Array.from({ length: Math.min(workers, lanes.length) }, async () => {
    while (lanes.length > 0) {
      let room = size()
      const portion: Message[] = []
      let rest: Message[] = []
      while (room > 0 && lanes.length > 0) {
        const lane = lanes.shift()!
        portion.push(...lane.slice(0, room))
        rest = lane.slice(room)
        room -= lane.length
      }
      await work(portion)
      if (rest.length > 0) lanes.unshift(rest)
    }
  }))
}
