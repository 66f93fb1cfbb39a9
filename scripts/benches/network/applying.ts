// What a large network takes to apply, to look at again, to change a little, and to take back.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { differences } from "../../../test/support/network/machine-state.ts";
import { median, type Figure } from "../figures.ts";
import { apply, makeMachine, withWan, type Machine, type Pass } from "./machine.ts";

const ROUNDS = 9;
const MANY = 1000;
const CHANGED = 10;
const MAPPINGS = 5000;

const octets = (index: number): string => `${index >> 8}.${index & 255}`;

/** So many routes and rules, of which the last are otherwise. */
function large(count: number, changed = 0): object {
  const indices = Array.from({ length: count }, (_, index) => index);
  const isChanged = (index: number): boolean => index >= count - changed;
  return withWan({
    routes: indices.map((index) => ({
      dest: `10.${octets(index)}.0/24`,
      dev: "eth0",
      via: isChanged(index) ? "192.0.2.9" : "192.0.2.1",
    })),
    rules: indices.map((index) => ({
      line: index + 1,
      protocol: "tcp",
      source: `172.16.${octets(index)}/32`,
      dest: "10.0.0.0/8",
      ports: isChanged(index) ? "8443" : "443",
      action: "drop",
    })),
  });
}

function mappings(count: number): object {
  const nats = Array.from({ length: count }, (_, index) => ({
    dest: `10.${octets(index)}.0/24`,
    toDest: `172.${16 + (index >> 12)}.${(index >> 4) & 255}.0/24`,
  }));
  return withWan({ nats });
}

/** 1,000 routes and 1,000 rules against the same tools by hand, and 5,000 translations. */
export async function applying(dir: string, say: (line: string) => void): Promise<readonly Figure[]> {
  const taken = {
    ms: [] as number[],
    inForce: [] as number[],
    hand: [] as number[],
    ratio: [] as number[],
    nat: [] as number[],
    natInForce: [] as number[],
    back: [] as number[],
  };
  let counts = { first: 0, same: 0, changed: 0, inUse: 0, left: 0 };
  for (let round = 0; round <= ROUNDS; round += 1) {
    const own = join(dir, `large-${round}`);
    const machine = makeMachine("holdfast-bench");
    const helper = machine.section(own);
    const before = machine.state();
    const first = await apply(helper, large(MANY));
    const same = await apply(helper, large(MANY));
    const back = JSON.parse(await helper.ask("back")) as { ms: number };
    const left = differences(before, machine.state()).length;
    await apply(helper, large(MANY));
    const ten = await apply(helper, large(MANY, CHANGED));
    await helper.end("SIGKILL");
    await machine.remove();
    const hand = await byHand(own);
    const nat = await translations(join(dir, `nat-${round}`));
    counts = {
      first: Math.max(counts.first, first.processes),
      same: Math.max(counts.same, same.steps),
      changed: Math.max(counts.changed, ten.steps),
      inUse: Math.max(counts.inUse, ten.processes),
      left: Math.max(counts.left, left),
    };
    // The first round warms everything up.
    if (round === 0) continue;
    taken.ms.push(first.ms);
    taken.inForce.push(first.inForceMs);
    taken.hand.push(hand);
    taken.ratio.push(first.ms / hand);
    taken.back.push(back.ms);
    taken.nat.push(nat.ms);
    taken.natInForce.push(nat.inForceMs);
  }
  say(`${ROUNDS} rounds of ${MANY} routes and ${MANY} rules, by a program that has applied small sections before`);
  const many = `${MANY} routes and ${MANY} rules`;
  return [
    {
      what: `${many}: the whole pass`,
      value: median(taken.ms),
      unit: "ms",
      peer: { name: "ip -batch, nft -f by hand", value: median(taken.hand) },
      ratio: median(taken.ratio),
      bar: { of: "ratio", most: 3 },
    },
    { what: `${many}: until in force`, value: median(taken.inForce), unit: "ms" },
    { what: `${many}, on a bare machine: processes`, value: counts.first, unit: "", bar: { of: "value", most: 6 } },
    { what: "the same again: steps", value: counts.same, unit: "", bar: { of: "value", most: 0 } },
    {
      what: `${CHANGED} of each changed: processes that change`,
      value: counts.changed,
      unit: "",
      bar: { of: "value", most: 2 },
    },
    {
      what: `${CHANGED} of each changed, on a machine in use: processes`,
      value: counts.inUse,
      unit: "",
      bar: { of: "value", most: 6 },
    },
    { what: "taken back", value: median(taken.back), unit: "ms" },
    { what: "taken back: differences", value: counts.left, unit: "", bar: { of: "value", most: 0 } },
    {
      what: `${MAPPINGS} translations: the whole pass`,
      value: median(taken.nat),
      unit: "ms",
      bar: { of: "value", most: 300 },
    },
    { what: `${MAPPINGS} translations: until in force`, value: median(taken.natInForce), unit: "ms" },
  ];
}

/** The very lines, by the tools alone, on a machine as new. */
async function byHand(dir: string): Promise<number> {
  const machine = makeMachine("holdfast-bench");
  const files = readdirSync(dir).filter((name) => name.startsWith("by-hand."));
  const lines = files
    .sort()
    .map((name) => (name.endsWith(".ip") ? `ip -batch ${join(dir, name)}` : `nft -f ${join(dir, name)}`))
    // As an agent runs them, so that on a busy machine both wait for the same.
    .map((line) => `nice -n 10 ${line}`);
  const ms = timed(machine, lines);
  await machine.remove();
  return ms;
}

function timed(machine: Machine, lines: readonly string[]): number {
  // Measured inside, without what it takes to get there.
  const script = ["begun=$(date +%s%N)", ...lines, "echo $(($(date +%s%N) - begun))"].join("\n");
  return Number(machine.run(`set -e\n${script}`).trim()) / 1e6;
}

async function translations(dir: string): Promise<Pass> {
  const machine = makeMachine("holdfast-bench");
  const helper = machine.section(dir);
  const pass = await apply(helper, mappings(MAPPINGS));
  await helper.end("SIGKILL");
  await machine.remove();
  return pass;
}
