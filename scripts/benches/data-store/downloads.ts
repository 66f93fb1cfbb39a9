// Downloads over HTTP against curl, and what memory they need.
import { join } from "node:path";
import { rmSync } from "node:fs";
import { median, type Figure } from "../figures.ts";
import type { Nginx } from "./nginx.ts";
import { command, jobOf, peakOf, transfer, type Cost } from "./transfers.ts";

/** The files that nginx has. */
export const LARGE = { name: "large", bytes: 1_000_000_000 } as const;
export const MEDIUM = { name: "medium", bytes: 250_000_000 } as const;
export const SMALL = { name: "small", bytes: 10_000_000 } as const;

const ROUNDS = 5;
const GB = LARGE.bytes / 1e9;

interface Contest {
  readonly what: string;
  readonly peer: string;
  readonly most?: number;
  readonly ours: () => Promise<Cost>;
  readonly theirs: () => Promise<Cost>;
}

/** Measures the cost of downloading a GB, alternating with curl, which writes its file in the same directory. */
export async function downloads(store: string, nginx: Nginx, say: (line: string) => void): Promise<Figure[]> {
  const { http, https, caFile } = nginx;
  const env = { NODE_EXTRA_CA_CERTS: caFile };
  const ours = (origin: string, algo?: "SHA-256") => (): Promise<Cost> =>
    transfer(
      jobOf(store, "ours", {
        kind: "http-download",
        uri: `${origin}/${LARGE.name}`,
        ...(algo === undefined ? {} : { algo }),
      }),
      env,
    );
  const file = join(store, "theirs");
  const curl = `curl --silent --fail --cacert ${caFile}`;
  const figures: Figure[] = [];
  const contests: readonly Contest[] = [
    {
      what: "1 GB over HTTP",
      peer: "curl",
      most: 1.35,
      ours: ours(http),
      theirs: () => command(`${curl} --output ${file} ${http}/${LARGE.name}`),
    },
    {
      what: "1 GB with its SHA-256",
      peer: "curl | sha256sum",
      most: 1.3,
      ours: ours(http, "SHA-256"),
      theirs: () => command(`${curl} ${http}/${LARGE.name} | sha256sum > ${file}`),
    },
    {
      what: "1 GB over HTTPS",
      peer: "curl",
      ours: ours(https),
      theirs: () => command(`${curl} --output ${file} ${https}/${LARGE.name}`),
    },
  ];
  for (const contest of contests) figures.push(...(await inTurns(contest, say)));
  for (const name of ["ours", "theirs"]) rmSync(join(store, name), { force: true });
  return figures;
}

async function inTurns({ what, peer, most, ours, theirs }: Contest, say: (line: string) => void): Promise<Figure[]> {
  const rounds: (readonly [Cost, Cost])[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const both = [await ours(), await theirs()] as const;
    rounds.push(both);
    const shown = both.map(({ cpuSeconds, seconds }) => `${cpuSeconds.toFixed(2)} s CPU in ${seconds.toFixed(2)} s`);
    say(`  ${what}: ${shown.join(", ")}`);
  }
  const figure = (part: string, unit: string, of: (cost: Cost) => number): Figure => ({
    what: `${what}, ${part}`,
    value: median(rounds.map(([cost]) => of(cost))),
    unit,
    peer: { name: peer, value: median(rounds.map(([, cost]) => of(cost))) },
    ratio: median(rounds.map(([one, other]) => of(one) / of(other))),
  });
  const cpu = figure("processor", "s/GB", ({ cpuSeconds }) => cpuSeconds / GB);
  return [
    most === undefined ? cpu : { ...cpu, bar: { of: "ratio", most } },
    figure("time", "s", ({ seconds }) => seconds),
  ];
}

/** The most memory that a transfer of a large file has, against one of a small file. */
export async function memory(store: string, { http }: Nginx, say: (line: string) => void): Promise<Figure[]> {
  const peaks: { readonly large: number; readonly small: number }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const of = (name: string): Promise<number> =>
      peakOf(jobOf(store, "ours", { kind: "http-download", uri: `${http}/${name}`, algo: "SHA-256" }));
    const both = { small: await of(SMALL.name), large: await of(LARGE.name) };
    peaks.push(both);
    say(`  peak of 10 MB: ${(both.small / 1e6).toFixed(1)} MB, of 1 GB: ${(both.large / 1e6).toFixed(1)} MB`);
  }
  rmSync(join(store, "ours"), { force: true });
  return [
    {
      what: "memory of a transfer of 1 GB at its peak",
      value: median(peaks.map(({ large }) => large)) / 1e6,
      unit: "MB",
      peer: { name: "one of 10 MB", value: median(peaks.map(({ small }) => small)) / 1e6 },
      ratio: median(peaks.map(({ large, small }) => large / small)),
      bar: { of: "ratio", most: 1.1 },
    },
  ];
}
