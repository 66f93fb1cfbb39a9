// The same change by `netplan try` and by us: what it takes, and what is left when whoever makes it is killed.
import { join } from "node:path";
import { differences } from "../../../test/support/network/machine-state.ts";
import { median, skip, type Figure } from "../figures.ts";
import { delay } from "../programs.ts";
import { apply, makeMachine, withWan } from "./machine.ts";
import { startNetplan, whyNoNetplan } from "./netplan.ts";

const ROUNDS = 5;
const ROUTES = 100;
const EXTRA = "198.51.100.7/24";
const TRY_SECONDS = 5;

const destinations = Array.from({ length: ROUTES }, (_, index) => `10.7.${index}.0/24`);

function yaml(gateway: string, addresses: readonly string[], routes: readonly string[]): string {
  const via = routes.map((to) => `        - {to: ${to}, via: ${gateway}}`);
  return [
    "network:",
    "  version: 2",
    "  renderer: networkd",
    "  ethernets:",
    "    eth0:",
    `      addresses: [${addresses.join(", ")}]`,
    "      routes:",
    `        - {to: default, via: ${gateway}}`,
    ...via,
  ].join("\n");
}

/** Another gateway, an address and 100 routes. */
export async function besideNetplan(dir: string, say: (line: string) => void): Promise<readonly Figure[]> {
  const what = `a gateway, an address and ${ROUTES} routes`;
  const ours = await ourTimes(dir);
  const left = "of it left when the process is killed: differences";
  const why = whyNoNetplan();
  if (why !== undefined) return [{ what, value: median(ours), unit: "ms" }, skip(`${what}, netplan try`, why)];
  const before = yaml("192.0.2.1", ["192.0.2.2/24"], []);
  const after = yaml("192.0.2.254", ["192.0.2.2/24", EXTRA], destinations);
  const machine = await startNetplan(dir, before);
  say("netplan is up");
  const times: number[] = [];
  let remains = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    await machine.apply(before);
    const begun = machine.state();
    const isDone = (): boolean => machine.routes() >= ROUTES + 3;
    const trial = await machine.try(after, TRY_SECONDS, isDone);
    times.push(trial.ms);
    trial.kill();
    await delay((TRY_SECONDS + 2) * 1000);
    remains = differences(begun, machine.state()).length;
  }
  await machine.end();
  return [
    {
      what,
      value: median(ours),
      unit: "ms",
      peer: { name: "netplan try", value: median(times) },
      bar: { of: "ratio", most: 1 },
    },
    // What is left of ours is what the kill points are about.
    { what: left, value: 0, unit: "", peer: { name: "netplan try", value: remains }, bar: { of: "value", most: 0 } },
  ];
}

async function ourTimes(dir: string): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    const machine = makeMachine("holdfast-bench");
    const helper = machine.section(join(dir, `beside-${round}`));
    await apply(helper, withWan({}));
    const routes = destinations.map((dest) => ({ dest, dev: "eth0", via: "192.0.2.254" }));
    const { ms } = await apply(helper, withWan({ routes }, "192.0.2.254", [EXTRA]));
    if (round > 0) times.push(ms);
    await helper.end("SIGKILL");
    await machine.remove();
  }
  return times;
}
