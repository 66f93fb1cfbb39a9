import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { hideSecrets, keepSecrets } from "../../../../../src/protocol/documents/secrets.ts";
import type { ConfigIssue } from "../../../../../src/protocol/sections/common/issue.ts";
import { ClusterNetworkSection, NetworkSection } from "../../../../../src/protocol/sections/network/network.ts";
import { readNetwork } from "../../../../../src/protocol/sections/network/read.ts";
import type { JsonObject } from "../../../../../src/protocol/values/values.ts";
import { nearValidValues, validValues } from "../../../../support/arbitrary.ts";
import { AGENT, APPLIANCE, CLUSTER } from "../../../../support/control-plane/example-documents.ts";
import { runs } from "../../../../support/sample.ts";

const ALONE = { nodeType: "Node", isMember: false } as const;
const read = (raw: unknown, isMember = false) => readNetwork(raw, { nodeType: "Node", isMember });

/** Sections with valid fields, without unsupported features. */
const sections = validValues(NetworkSection).map((value): unknown =>
  JSON.parse(JSON.stringify(value, (key, inner: unknown) => (key === "requires" ? undefined : inner))),
);

/** Reports whether a path exists in the document, up to a missing last field. */
function leadsSomewhere(raw: unknown, path: string): boolean {
  const [section, ...steps] = path.split(".");
  if (section !== "network") return false;
  let here: unknown = raw;
  for (const step of steps.slice(0, -1)) {
    if (typeof here !== "object" || here === null || !Object.hasOwn(here, step)) return false;
    here = Reflect.get(here, step);
  }
  return true;
}

function checkIssues(raw: unknown, issues: readonly ConfigIssue[]): void {
  for (const { path, code, message } of issues) {
    expect(code).toMatch(/^E_[A-Z_0-9]+$/);
    expect(message.startsWith(`${path}: `)).toBe(true);
    expect(message.length).toBeLessThan(1024);
    expect([path, leadsSomewhere(raw, path)]).toEqual([path, true]);
  }
}

describe("a section with valid fields", () => {
  it("is kept completely by the API or refused by path, and read the same each time", () => {
    fc.assert(
      fc.property(sections, fc.boolean(), (raw, isMember) => {
        const parsed = NetworkSection.safeParse(raw);
        if (parsed.success) expect(parsed.data).toEqual(raw);
        else for (const { path } of parsed.error.issues) expect(path.length).toBeGreaterThan(0);
        const once = read(raw, isMember);
        expect(read(structuredClone(raw), isMember)).toEqual(once);
        checkIssues(raw, [...once.rejected, ...once.notices]);
        const codes = new Set(once.rejected.map(({ code, path }) => (path.endsWith(".psk") ? "psk" : code)));
        // A node skips an item accepted by the API only for its references, or for a secret that was never sent.
        if (parsed.success && !isMember)
          expect([...codes].filter((code) => code !== "E_REF_UNKNOWN" && code !== "psk")).toEqual([]);
      }),
      { numRuns: runs(80) },
    );
  });

  it("is the same after it was shown and written back", () => {
    fc.assert(
      fc.property(sections, (raw) => {
        const stored = raw as JsonObject & { readonly tunnels?: readonly { readonly name: string }[] };
        const names = (stored.tunnels ?? []).map(({ name }) => name);
        // The API refuses two tunnels with one name.
        fc.pre(new Set(names).size === names.length);
        const shown = hideSecrets({ network: stored })["network"] as JsonObject;
        expect(keepSecrets("network", shown, stored)).toEqual(stored);
      }),
      { numRuns: runs(40) },
    );
  });
});

describe("a reader", () => {
  const any = fc.oneof(
    nearValidValues(NetworkSection).map(({ value }) => value),
    fc.jsonValue({ maxDepth: 4 }),
    fc.anything({ maxDepth: 3 }),
    fc.record(
      Object.fromEntries(
        ["interfaces", "vrfs", "tunnels", "routes", "nats", "acls", "rules", "darkMode"].map((name) => [
          name,
          fc.oneof(
            fc.array(fc.dictionary(fc.constantFrom("nic", "name", "vrf", "ip", "routes"), fc.jsonValue())),
            fc.jsonValue(),
          ),
        ]),
      ),
      { requiredKeys: [] },
    ),
  );

  it("never throws, changes nothing, and names the path of everything that it skips", () => {
    fc.assert(
      fc.property(any, fc.boolean(), (raw, isMember) => {
        const before = fc.stringify(raw);
        const { rejected, notices, config, isUnusable } = read(raw, isMember);
        checkIssues(raw, [...rejected, ...notices]);
        expect(fc.stringify(raw)).toBe(before);
        if (isUnusable === true) expect([config.isPresent, rejected.length]).toEqual([false, 1]);
        const vlans = config.interfaces.flatMap(({ subInterfaces }) => subInterfaces.map(({ link }) => link));
        const links = [...config.interfaces.map(({ nic }) => nic), ...vlans];
        expect(new Set(links).size).toBe(links.length);
        expect(links.every((link) => link.length <= 15)).toBe(true);
      }),
      { numRuns: runs(300) },
    );
  });

  it("never puts a link into a missing VRF, or out of its own", () => {
    fc.assert(
      fc.property(sections, (raw) => {
        const { config } = read(raw);
        const vrfs = new Set([undefined, ...config.vrfs.map(({ name }) => name)]);
        const entries = (raw as { readonly interfaces?: readonly { readonly nic: string; readonly vrf?: string }[] })
          .interfaces;
        for (const one of config.interfaces) {
          expect(vrfs.has(one.vrf)).toBe(true);
          expect(entries?.find(({ nic }) => nic === one.nic)?.vrf ?? "default").toBe(one.vrf ?? "default");
          for (const { vrf } of one.subInterfaces) expect(vrfs.has(vrf)).toBe(true);
        }
        for (const { vrf } of [config.routing, ...config.vrfs].flatMap(({ rules }) => rules)) {
          expect(vrf === "default" || vrfs.has(vrf)).toBe(true);
        }
      }),
      { numRuns: runs(60) },
    );
  });
});

describe("the example documents", () => {
  it("are accepted by the API of their node or cluster", () => {
    expect(NetworkSection.parse(APPLIANCE.network)).toEqual(APPLIANCE.network);
    expect(ClusterNetworkSection.parse(CLUSTER.config.network)).toEqual(CLUSTER.config.network);
    expect(NetworkSection.safeParse(CLUSTER.config.network).success).toBe(false);
    expect(ClusterNetworkSection.safeParse(APPLIANCE.network).success).toBe(false);
    expect(Object.keys(AGENT)).not.toContain("network");
    expect(readNetwork(APPLIANCE.network, ALONE).rejected).toEqual([]);
  });
});
