import { median, skip, type Figure } from "../figures.ts";
import type { Load } from "../l4/load-client.ts";
import { compared, interleaved } from "../l4/rounds.ts";
import { cpuSecondsOf } from "../processes.ts";
import type { Carrier } from "./contenders.ts";

/** All that lead through the gateway; of what is not there, why. */
export interface Carriers {
  readonly overlay: Carrier;
  readonly bare: Carrier;
  readonly splices: Carrier;
  readonly nebula: Carrier | string;
  readonly haproxy: Carrier | string;
}

const GB = 1e9;
const BULK_BYTES = 0.4 * GB;
const BULK_FLOWS = 4;
const CONNECTS = 2000;
const AT_ONCE = 32;
const TRIPS = 3000;

/** Returns the address of one of its servers for the load generator. */
export function serverOf({ host, ports }: Carrier, which: keyof Carrier["ports"]) {
  return { port: ports[which], ...(host === undefined ? {} : { host }) };
}

/** Processor seconds for each GB, and how many bits a second, to the client and from it. */
export async function bulk(load: Load, { overlay, bare, nebula, haproxy }: Carriers): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const [way, what, server] of [
    ["pull", "to the client", "source"],
    ["push", "from the client", "sink"],
  ] as const) {
    const values = await interleaved(
      everyOne({ overlay, bare, nebula, haproxy }, async (carrier) => {
        const [cpu, from] = [cpuOf(carrier), performance.now()];
        await load.ask({ do: way, ...serverOf(carrier, server), flows: BULK_FLOWS, bytes: BULK_BYTES });
        const seconds = (performance.now() - from) / 1000;
        return { cpu: ((cpuOf(carrier) - cpu) / BULK_BYTES) * GB, rate: (BULK_BYTES * 8) / GB / seconds };
      }),
      { rounds: 5, warmUp: 1 },
    );
    const of = (one: readonly Measured[], which: keyof Measured) => one.map((measured) => measured[which]);
    const against = (which: keyof Measured, peer: Carrier | string, key: "bare" | "nebula" | "haproxy", bar?: Bar) => {
      const [label, unit] = which === "cpu" ? [`cost ${what}`, "CPU s/GB"] : [`speed ${what}`, "Gb/s"];
      if (typeof peer === "string") return skip(`${label} (${key})`, peer);
      return compared(label, unit, of(values.overlay, which), { name: peer.name, values: of(values[key], which) }, bar);
    };
    figures.push(
      against("cpu", bare, "bare", { of: "ratio", most: 1.2 }),
      against("cpu", haproxy, "haproxy"),
      against("cpu", nebula, "nebula"),
      against("rate", nebula, "nebula", { of: "ratio", least: 1 }),
      against("rate", bare, "bare"),
      against("rate", haproxy, "haproxy"),
    );
  }
  return figures;
}

/** New flows a second, each with a message there and back. */
export async function newFlows(load: Load, { overlay, bare, haproxy }: Carriers): Promise<Figure[]> {
  const values = await interleaved(
    everyOne({ overlay, bare, haproxy }, async (carrier) => {
      const question = { do: "connects", ...serverOf(carrier, "echo"), count: CONNECTS, atOnce: AT_ONCE } as const;
      return CONNECTS / (await load.ask(question)).seconds;
    }),
    { rounds: 5, warmUp: 2 },
  );
  const peer = { name: bare.name, values: values.bare };
  const figure = compared("new flows", "/s", values.overlay, peer, { of: "ratio", least: 0.8 });
  if (typeof haproxy === "string") return [figure, skip("new flows (HAProxy)", haproxy)];
  return [figure, compared("new flows", "/s", values.overlay, { name: haproxy.name, values: values.haproxy })];
}

/** A message of 64 bytes there and back, against three pipes and against the same layers bare. */
export async function roundTrips(load: Load, { overlay, bare, splices }: Carriers): Promise<Figure[]> {
  const values = await interleaved(
    everyOne({ overlay, bare, splices }, async (carrier) => {
      const { p50 } = await load.ask({ do: "roundTrips", ...serverOf(carrier, "echo"), count: TRIPS });
      return p50 / 1000;
    }),
    { rounds: 7, warmUp: 1 },
  );
  const added = (to: readonly number[]): number =>
    median(to.map((value, round) => value - (values.splices[round] ?? Number.NaN)));
  return [
    compared("64 bytes there and back, p50", "ms", values.overlay, { name: bare.name, values: values.bare }),
    compared("64 bytes there and back, p50", "ms", values.overlay, { name: splices.name, values: values.splices }),
    {
      what: "added to plain splices",
      value: added(values.overlay),
      unit: "ms",
      peer: { name: bare.name, value: added(values.bare) },
      bar: { of: "value", most: 0.1 },
    },
  ];
}

interface Measured {
  readonly cpu: number;
  readonly rate: number;
}

type Bar = NonNullable<Figure["bar"]>;

function cpuOf({ pids }: Carrier): number {
  return pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0);
}

/** A measure for each that is there; one that is not gives no values. */
function everyOne<Name extends string, T>(
  carriers: Readonly<Record<Name, Carrier | string>>,
  measure: (carrier: Carrier) => Promise<T>,
): Readonly<Record<Name, () => Promise<T>>> {
  const present = (Object.entries(carriers) as [Name, Carrier | string][]).filter(([, one]) => typeof one !== "string");
  return Object.fromEntries(present.map(([name, carrier]) => [name, () => measure(carrier as Carrier)])) as Record<
    Name,
    () => Promise<T>
  >;
}
