/** Error codes of the platform, each with its JSON-RPC number and HTTP status. */
export const errorCodes = {
  "unknown-event": { rpc: -32001, http: 404, meaning: "no trigger event of this name" },
  "not-supported": { rpc: -32002, http: 422, meaning: "this kind of node, or this machine, cannot do it" },
  "not-configured": { rpc: -32003, http: 422, meaning: "what it works on is not configured" },
  "invalid-body": { rpc: -32004, http: 422, meaning: "a field is missing or wrong; details say which" },
  "not-found": { rpc: -32005, http: 404, meaning: "the named thing does not exist" },
  busy: { rpc: -32006, http: 409, meaning: "a limit of concurrent work is reached, or an exclusive one is running" },
  "tool-missing": { rpc: -32007, http: 501, meaning: "the program it needs is not installed" },
  "exec-failed": { rpc: -32008, http: 502, meaning: "the program could not be started or was killed" },
  timeout: { rpc: -32009, http: 504, meaning: "the deadline passed" },
  cancelled: { rpc: -32010, http: 499, meaning: "the caller took it back" },
  interrupted: { rpc: -32011, http: 502, meaning: "a crash cut it off; it is never run again" },
  inactive: { rpc: -32012, http: 409, meaning: "the node is INACTIVE and this needs the data plane" },
  offline: { rpc: -32013, http: 503, meaning: "the node has no session" },
  "out-of-sync": { rpc: -32014, http: 409, meaning: "the base version is not the one stored; send everything" },
  "bad-signature": { rpc: -32015, http: 401, meaning: "a signature, an audience, a time or a version does not hold" },
  replayed: { rpc: -32016, http: 409, meaning: "the id was used before with another body, or in another session" },
  "storage-unavailable": {
    rpc: -32017,
    http: 507,
    meaning: "the disk takes no writes, so what must be kept cannot be",
  },
  "not-connected": { rpc: -32019, http: 502, meaning: "no tunnel leads to the other node" },
  "disk-full": {
    rpc: -32020,
    http: 507,
    meaning: "there is no room for it: the disk is full, a reserve or a quota is reached",
  },
  forbidden: { rpc: -32021, http: 403, meaning: "the node keeps it for itself, or its owner does not allow it" },
  conflict: {
    rpc: -32022,
    http: 409,
    meaning: "what is there does not allow it: it is in use, of another kind, or over",
  },
  "unauthorized-ip": {
    rpc: -32024,
    http: 409,
    meaning: "the node is locked to addresses, and connects from another",
  },
  failed: {
    rpc: -32023,
    http: 502,
    meaning: "the node could not do it, for a reason that has a code of its own: `data.code` and the message name it",
  },
  internal: { rpc: -32018, http: 500, meaning: "a fault of the program" },
} as const satisfies Record<string, { rpc: number; http: number; meaning: string }>;

export type ErrorCode = keyof typeof errorCodes;

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code);
}
