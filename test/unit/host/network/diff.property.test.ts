import fc from "fast-check";
import { expect, test } from "vitest";
import { diffNetwork } from "../../../../src/host/network/diff.ts";
import { loadTarget, restoreNetwork, storeTarget, undoTarget } from "../../../../src/host/network/restore.ts";
import { OUR_PROTOCOL, type NetworkState, type NetworkTarget } from "../../../../src/host/network/state/state.ts";
import { ModelNetwork } from "../../../support/network/model-network.ts";
import { networkStates, networkTargets } from "../../../support/network/network-arbitraries.ts";
import { runs } from "../../../support/sample.ts";

const signal = new AbortController().signal;

test("from any state reaches the wanted one in one pass, and foreign entries stay", async () => {
  await fc.assert(
    fc.asyncProperty(networkStates, networkTargets, async (state, target) => {
      const model = new ModelNetwork(state);
      for (const change of diffNetwork(state, target)) await model.apply(change);
      expect(diffNetwork(model.state(), target)).toEqual([]);
      expect(strangers(model.state(), state, target)).toEqual(strangers(state, state, target));
    }),
    { numRuns: runs(10_000) },
  );
});

test("a rollback reaches the original state from anywhere on the path, also after a failure", async () => {
  await fc.assert(
    fc.asyncProperty(networkStates, networkTargets, fc.nat(), async (state, target, at) => {
      const stored = storeTarget(undoTarget(state, target, state.firewall?.text));
      const model = new ModelNetwork(state);
      let left = at % 30;
      model.onLine = () => {
        left -= 1;
        if (left < 0) throw new Error("cut off");
      };
      for (const change of diffNetwork(state, target)) {
        try {
          await model.apply(change);
        } catch {
          break;
        }
      }
      model.onLine = () => undefined;
      const before = loadTarget(structuredClone(stored));
      await restoreNetwork(model, before, signal);
      expect(ours(model.state(), state)).toEqual(ours(state, state));
    }),
    { numRuns: runs(2_000) },
  );
});

/** Foreign entries, except those that the kernel drops with a link that is down or without an address. */
function strangers(now: NetworkState, before: NetworkState, target: NetworkTarget) {
  const own = new Set(before.links.filter(({ isOurs }) => isOurs).map(({ name }) => name));
  const wanted = new Map(target.links.map((link) => [link.name, link]));
  // A lease ends with its client.
  const isEnding = ({ link, isDynamic }: NetworkState["addresses"][number]): boolean =>
    isDynamic && before.dhcp.has(link) && !target.dhcp.has(link);
  const settled = new Set(
    before.links.flatMap(({ name, master, isOurs }) => {
      const link = wanted.get(name);
      const others = before.addresses.filter(
        (address) => address.link === name && !address.isOurs && !isEnding(address),
      );
      const isKept = !isOurs && link?.isUp !== false && link?.master === master && others.length > 0;
      return isKept ? [name] : [];
    }),
  );
  return {
    links: now.links
      .filter(({ name }) => before.links.some((link) => link.name === name && !own.has(name)))
      .map(({ name }) => name),
    addresses: now.addresses
      .filter((address) => !address.isOurs && !own.has(address.link) && !isEnding(address))
      .map(({ link, address }) => `${link} ${address}`),
    routes: now.routes.filter(
      ({ protocol, link }) => protocol !== OUR_PROTOCOL && (link === undefined || settled.has(link)),
    ),
    rules: now.rules.filter(({ protocol }) => protocol !== OUR_PROTOCOL),
  };
}

/** Our entries, and adjusted ones; sorted. */
function ours(
  { links, addresses, routes, rules, firewall, sysctls, dhcp, nameServers }: NetworkState,
  before: NetworkState,
) {
  const sorted = (list: readonly object[]): readonly string[] =>
    list.map((one) => JSON.stringify(one, Object.keys(one).sort())).sort();
  return {
    links: sorted(
      links.map(({ name, kind, parent, vlanId, master, table, mtu, isUp, fixed }) => ({
        name,
        kind,
        parent,
        vlanId,
        master,
        table,
        mtu,
        isUp,
        fixed,
      })),
    ),
    addresses: sorted(addresses.filter(({ isOurs }) => isOurs)),
    routes: sorted(alone(routes, before.routes)),
    rules: sorted(alone(rules, before.rules)),
    firewall: firewall?.text,
    sysctls: [...sysctls]
      .filter(([name]) => before.sysctls.has(name))
      .map(([name, value]) => `${name}=${value}`)
      .sort(),
    dhcp: [...dhcp],
    nameServers,
  };
}

/** Our entries without those with a foreign equal, since either will do. */
function alone<T extends { readonly protocol: number }>(list: readonly T[], before: readonly T[]): readonly T[] {
  const text = (one: T): string =>
    JSON.stringify(
      one,
      Object.keys(one)
        .filter((key) => key !== "protocol")
        .sort(),
    );
  const foreign = new Set(before.filter(({ protocol }) => protocol !== OUR_PROTOCOL).map(text));
  return list.filter((one) => one.protocol === OUR_PROTOCOL && !foreign.has(text(one)));
}
