/** Address of a server; `host` is 127.0.0.1 by default. */
interface To {
  readonly host?: string;
  readonly port: number;
}

/** Requests to the load generator. */
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

/** Answers of the load generator. Times are in microseconds, except `seconds`. */
export interface LoadAnswers {
  readonly pull: object;
  readonly push: object;
  readonly connects: { readonly seconds: number };
  readonly roundTrips: { readonly p50: number; readonly p99: number };
  readonly hold: object;
  readonly stall: object;
  /** From the question to that answer. */
  readonly recovery: { readonly ms: number };
  /** Number of connections that the other side closed, and of messages that came back. */
  readonly release: { readonly cut: number; readonly exchanged: number };
}
