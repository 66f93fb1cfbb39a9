/** What the load generator is asked. */
export type LoadQuestion =
  | { readonly do: "pull" | "push"; readonly port: number; readonly flows: number; readonly bytes: number }
  | { readonly do: "connects"; readonly port: number; readonly count: number; readonly atOnce: number }
  | { readonly do: "roundTrips"; readonly port: number; readonly count: number }
  | { readonly do: "hold"; readonly port: number; readonly count: number; readonly keepOn: boolean }
  | { readonly do: "release" };

/** What it answers. Times in microseconds but for `seconds`. */
export interface LoadAnswers {
  readonly pull: object;
  readonly push: object;
  readonly connects: { readonly seconds: number };
  readonly roundTrips: { readonly p50: number; readonly p99: number };
  readonly hold: object;
  /** How many connections were ended by the other side, and how many messages came back. */
  readonly release: { readonly cut: number; readonly exchanged: number };
}
