/** What else a handler's statement does. */
export type Effect = 'plain' | 'local' | 'setting' | 'end'

/** The statements of a text: quotes, dollar quotes and comments are blanked out, so that words in them don't count. */
const opaque = /--[^\n]*|\/\*[\s\S]*?\*\/|\be'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([a-z_]\w*)?\$[\s\S]*?\$\1\$/gi

/** Returns the worst that a text does: it ends the transaction, or changes a setting of the session or, local, of it. */
export function inspect(sql: string): Effect {
  let worst: Effect = 'plain'
  for (const one of sql.replace(opaque, quoted => quoted.startsWith('-') || quoted.startsWith('/') ? ' ' : ' x ').split(';')) {
    const words = one.trim().toLowerCase()
    if (/^(commit|end|abort|begin|start\s+transaction|prepare\s+transaction)\b/.test(words) ||
      (/^rollback\b/.test(words) && !/^rollback\s+((work|transaction)\s+)?to\b/.test(words))) return 'end'
    if (/^(set(?!\s+(constraints|transaction|local)\b)|reset|listen|load|discard)\b/.test(words) ||
      /\bset_config\b/.test(words) || /\bpg_advisory_lock|\bpg_try_advisory_lock/.test(words)) worst = 'setting'
    else if (/^set\b/.test(words) && worst === 'plain') worst = 'local'
  }
  return worst
}
