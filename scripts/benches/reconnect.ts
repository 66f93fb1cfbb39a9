import { simulateStorm } from "../../test/support/control-plane/storm.ts";
import type { Bench } from "./bench.ts";

const NODES = 10_000;
const OUTAGES = [
  { name: "2 s", ms: 2000, attempts: 1.4, peak: 20 },
  { name: "5 min", ms: 300_000, attempts: 16, peak: 5 },
  { name: "2 h", ms: 7_200_000, attempts: 140, peak: 5 },
];

/** Simulates the load that the session's state machine puts on a control plane that comes back; the numbers never vary. */
export const reconnect: Bench = {
  area: "reconnect",
  about: `${NODES} nodes lose their control plane at once: attempts, and the peak when it is back`,
  run: async () =>
    OUTAGES.flatMap(({ name, ms, attempts, peak }) => {
      const storm = simulateStorm(NODES, ms);
      return [
        {
          what: `${name} away: attempts of a node`,
          value: storm.attempts,
          unit: "",
          bar: { of: "value", most: attempts } as const,
        },
        {
          what: `${name} away: peak`,
          value: (100 * storm.recoveryPeak) / NODES,
          unit: "% of them in a second",
          bar: { of: "value", most: peak } as const,
        },
        { what: `${name} away: all back after`, value: storm.allBackAt / 1000, unit: "s" },
      ];
    }),
};
