/** Where a server is; `host` is 127.0.0.1 unless said otherwise. */
interface To {
  readonly host?: string;
  readonly port: number;
}

/** What the load generator is asked. */
export type LoadQuestion =
  | (To & { readonly do: "pull" | "push"; readonly flows: number; readonly bytes: number })
  | (To & { readonly do: "connects"; readonly count: number; readonly atOnce: number })
  | (To & { readonly do: "roundTrips"; readonly count: number })
  | (To & { readonly do: "hold"; readonly count: number; readonly keepOn: boolean })
  /** Asks for bytes that are never read; held as others are. */
  | (To & { readonly do: "stall"; readonly bytes: number })
  /** Tries a new connection with a message every `everyMs` until one of them has its answer. */
  | (To & { readonly do: "recovery"; readonly everyMs: number; readonly withinMs: number })
  | { readonly do: "release" };

/** What it answers. Times in microseconds but for `seconds`. */
export interface LoadAnswers {
  readonly pull: object;
  readonly push: object;
  readonly connects: { readonly seconds: number };
  readonly roundTrips: { readonly p50: number; readonly p99: number };
  readonly hold: object;
  readonly stall: object;
  /** From the question to that answer. */
  readonly recovery: { readonly ms: number };
  /** How many connections were ended by the other side, and how many messages came back. */
  readonly release: { readonly cut: number; readonly exchanged: number };
}
