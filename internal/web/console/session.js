// Who is logged in. The page knows the name and the end only; what proves it is the cookie, which scripts do not see.

import { get, post, remove } from "./api.js";

const path = "/api/v1/session";
const nobody = { name: null, expires_at: null, changes: true };

let now = nobody;
let tell = () => {};

function set(session) {
  now = session;
  tell(who(), now.changes);
}

// who is the name of the person who is logged in, null without one.
export const who = () => (now.name !== null && Date.now() < new Date(now.expires_at).getTime() ? now.name : null);

// onChange calls back with the name, and with whether anybody can log in.
export function onChange(then) { tell = then; }

export async function look() {
  try {
    set(await get(path));
  } catch {
    set(nobody); // refused, or there is no answer
  }
}

export const logIn = async (token, name) => set(await post(path, { token, name }));
export const logOut = async () => set(await remove(path));
export const forget = () => set(nobody);
