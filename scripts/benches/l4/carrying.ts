import { median, type Figure } from "../figures.ts";
import { cpuSecondsOf } from "../processes.ts";
import type { Contender } from "./contenders.ts";
import type { Load } from "./load-client.ts";
import { compared, interleaved } from "./rounds.ts";

export interface Contenders {
  readonly overlay: Contender;
  readonly haproxy: Contender;
  readonly pipe: Contender;
}

const GB = 1e9;
const BULK_BYTES = 1.5 * GB;
const BULK_FLOWS = 4;
const CONNECTS = 3000;
const AT_ONCE = 32;
const TRIPS = 10_000;

/** Processor seconds for each GB, to the client and from it. */
export async function bulk(load: Load, { overlay, haproxy, pipe }: Contenders): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const [what, way, port] of [
    ["bulk to the client", "pull", "source"],
    ["bulk from the client", "push", "sink"],
  ] as const) {
    const cost = (contender: Contender) => async (): Promise<number> => {
      const before = cpuSecondsOf(contender.pid);
      await load.ask({ do: way, port: contender.ports[port], flows: BULK_FLOWS, bytes: BULK_BYTES });
      return (cpuSecondsOf(contender.pid) - before) / (BULK_BYTES / GB);
    };
    const measures = { overlay: cost(overlay), haproxy: cost(haproxy), pipe: cost(pipe) };
    const values = await interleaved(measures, { rounds: 7, warmUp: 1 });
    figures.push(
      compared(what, "CPU s/GB", values.overlay, of(haproxy, values.haproxy), { of: "ratio", most: 1 }),
      compared(what, "CPU s/GB", values.overlay, of(pipe, values.pipe), { of: "ratio", most: 1.1 }),
    );
  }
  return figures;
}

/** Processor time of a connection that carries one message there and back, and how many a second there are. */
export async function connectCost(load: Load, { overlay, haproxy, pipe }: Contenders): Promise<Figure[]> {
  const cost = (contender: Contender) => async (): Promise<{ readonly cpu: number; readonly rate: number }> => {
    const before = cpuSecondsOf(contender.pid);
    const { seconds } = await load.ask({
      do: "connects",
      port: contender.ports.echo,
      count: CONNECTS,
      atOnce: AT_ONCE,
    });
    return { cpu: (1e6 * (cpuSecondsOf(contender.pid) - before)) / CONNECTS, rate: CONNECTS / seconds };
  };
  const measures = { overlay: cost(overlay), haproxy: cost(haproxy), pipe: cost(pipe) };
  const values = await interleaved(measures, { rounds: 9, warmUp: 2 });
  const [cpus, rates] = [values.overlay.map(({ cpu }) => cpu), values.overlay.map(({ rate }) => rate)];
  const peerCpus = (contender: Contender, of: readonly { readonly cpu: number }[]) => ({
    name: contender.name,
    values: of.map(({ cpu }) => cpu),
  });
  return [
    compared("a connection", "CPU µs", cpus, peerCpus(haproxy, values.haproxy), { of: "ratio", most: 2.2 }),
    compared("a connection", "CPU µs", cpus, peerCpus(pipe, values.pipe)),
    {
      what: "new connections",
      value: median(rates),
      unit: "/s",
      peer: { name: haproxy.name, value: median(values.haproxy.map(({ rate }) => rate)) },
      bar: { of: "value", least: 2500 },
    },
  ];
}

/** A message of 64 bytes there and back. */
export async function roundTrips(load: Load, { overlay, haproxy }: Contenders): Promise<Figure[]> {
  const trips = (contender: Contender) => () =>
    load.ask({ do: "roundTrips", port: contender.ports.echo, count: TRIPS });
  const values = await interleaved({ overlay: trips(overlay), haproxy: trips(haproxy) }, { rounds: 9, warmUp: 1 });
  return (["p50", "p99"] as const).map((which) => {
    const peer = of(
      haproxy,
      values.haproxy.map((trip) => trip[which]),
    );
    const most = which === "p50" ? 1.3 : 1.5;
    const here = values.overlay.map((trip) => trip[which]);
    return compared(`64 bytes there and back, ${which}`, "µs", here, peer, { of: "ratio", most });
  });
}

function of({ name }: Contender, values: readonly number[]): { readonly name: string; readonly values: typeof values } {
  return { name, values };
}
