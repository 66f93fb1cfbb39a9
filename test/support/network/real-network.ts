import { expect } from "vitest";
import type { Carrier } from "../../../src/agent/sections/network/actual.ts";
import { networkSection } from "../../../src/agent/sections/network/section.ts";
import type { NetworkMachine } from "./network-machine.ts";
import type { Notes } from "./network-section.ts";

const signal = new AbortController().signal;

/** The surroundings of a section. */
export interface Around {
  readonly carrier?: Carrier | undefined;
  readonly isMember?: boolean;
  readonly isActiveMember?: () => boolean;
  /** False to use no VRF devices although the kernel supports them. */
  readonly hasVrf?: boolean;
}

/** A section over the real tools in a network namespace. */
export function sectionOver(machine: NetworkMachine, notes: Notes, around: Around = {}) {
  const { isMember = false, isActiveMember = () => false, hasVrf = true } = around;
  return networkSection({
    driver: {
      async features() {
        const { vlan, vrf, nft, dhcp, reasons } = await machine.features();
        const is = (value: unknown): boolean => value === true;
        return {
          vlan: is(vlan),
          vrf: hasVrf && is(vrf),
          nft: is(nft),
          dhcp: is(dhcp),
          reasons: new Map(Object.entries(reasons)),
        };
      },
      async observe({ sysctls }) {
        const state = await machine.observe([...sysctls]);
        return { ...state, sysctls: new Map(Object.entries(state.sysctls)), dhcp: new Set(state.dhcp) };
      },
      apply: (change) => machine.apply(change),
      mayOwn: () => machine.mayOwn(),
      disown: () => machine.disown(),
    },
    record: {
      load: () => Promise.resolve(notes.record),
      save: (record) => {
        notes.record = record;
        return Promise.resolve();
      },
    },
    carrier: () => around.carrier,
    context: () => ({ nodeType: "Node", isMember }),
    isActiveMember,
    unsupported: () => undefined,
  });
}

type Section = ReturnType<typeof sectionOver>;

/** Returns the steps for a section of a document. */
export async function stepsOf(section: Section, raw: unknown) {
  const { desired } = section.parse(raw);
  const actual = await section.observe(signal, desired);
  const [waits, notices] = [section.waits?.(desired, actual) ?? [], section.notices?.(desired, actual) ?? []];
  return { steps: section.plan(desired, actual), actual, waits, notices };
}

/** Applies a section, and expects an empty plan afterwards. */
export async function converge(section: Section, raw: unknown) {
  const { steps, actual, waits } = await stepsOf(section, raw);
  const undos = steps.flatMap((step) => section.undo(step, actual) ?? []);
  for (const step of steps) await section.apply(step, signal);
  expect((await stepsOf(section, raw)).steps).toEqual([]);
  return { steps, undos, waits };
}

/** The complete comparable state. */
export const dump = (machine: NetworkMachine): string =>
  machine.sh(`
ip -4 address show | grep -v valid_lft; ip -4 route show table all | grep -v "table local"; ip -4 rule show
ip -d link show | grep -E "^[0-9]+:| vlan protocol" | sed 's/ qdisc.*//'; nft -s list ruleset
cat /proc/sys/net/ipv4/conf/*/{rp_filter,arp_ignore,promote_secondaries,forwarding}
`);
