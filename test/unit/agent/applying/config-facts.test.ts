import { describe, expect, test } from "vitest";
import type { Standing } from "../../../../src/agent/reconcile/section-status.ts";
import { configFacts } from "../../../../src/agent/applying/config-facts.ts";
import { withinLimits } from "../../../../src/agent/shadow/reporter.ts";
import { InputError } from "../../../../src/errors.ts";
import { configShadowKeys, ShadowMap } from "../../../../src/protocol/values/shadow.ts";

function standing(changes: Partial<Standing> = {}): Standing {
  return {
    section: "connectors",
    outcome: { state: "converged" },
    issues: [],
    rejected: 0,
    notices: [],
    sinces: new Map(),
    reported: {},
    version: { node: 7 },
    steps: 0,
    since: 5000,
    lastAttempt: 9000,
    failures: 0,
    drift: { count: 0, what: [] },
    ...changes,
  };
}

const factsOf = (...standings: Standing[]): ShadowMap => configFacts({ desired: {}, standings, unsupported: [] });

describe("the shadow of the configuration", () => {
  test("has the state, since when, and the versions of the documents", () => {
    expect(factsOf(standing({ version: { node: 7, cluster: 2, domain: 3 } }))).toEqual({
      "config.connectors.state": "converged",
      "config.connectors.since": 5,
      "config.connectors.version": 7,
      "config.connectors.version.cluster": 2,
      "config.connectors.version.domain": 3,
    });
  });

  test("has the reason, the items and the drift", () => {
    const issues = [{ path: "connectors.items.c1.port", code: "E_PORT_IN_USE", message: "80 is taken" }];
    const error = new InputError("nope", "it refused");
    const drift = { count: 3, lastAt: 61_999, what: ["listen c1", "close c2"] };
    expect(factsOf(standing({ outcome: { state: "failed", error }, issues, drift }))).toMatchObject({
      "config.connectors.state": "failed",
      "config.connectors.reason": "nope: it refused",
      "config.connectors.reason.since": 5,
      "config.connectors.issues": 1,
      "config.connectors.item.items.c1.port": "E_PORT_IN_USE: 80 is taken",
      "config.connectors.drift.count": 3,
      "config.connectors.drift.last": 61,
      "config.connectors.drift.what": "listen c1, close c2",
    });
  });

  test("has the reports of sections under the platform's own keys", () => {
    const reported = {
      "cluster.master": true,
      "tunnel.t1.state": "UP",
      listeners: 3,
      by: { tcp: 2, udp: 1 },
      names: ["a", "b"],
      nothing: undefined,
      wrong: Number.NaN,
    };
    const facts = factsOf(standing({ reported }));
    expect(facts).toMatchObject({
      "cluster.master": "true",
      "tunnel.t1.state": "UP",
      "config.connectors.reported.listeners": 3,
      "config.connectors.reported.by.tcp": 2,
      "config.connectors.reported.names": "a, b",
    });
    expect(Object.keys(facts)).toHaveLength(3 + 6);
  });

  test("lists the applied documents, the rolled back ones, and what is not applied", () => {
    const body = { fqdn: "example.net", peers: [], grants: [], requires: [] };
    const held = {
      version: 4,
      sub: "example.net",
      receivedAt: 1,
      passedOver: [],
      refused: { version: 5, at: 2 },
      body,
    };
    expect(configFacts({ desired: { domain: held }, standings: [], unsupported: ["vpn"] })).toEqual({
      "document.domain.version": 4,
      "document.domain.refused": 5,
      "config.vpn.state": "unsupported",
    });
  });

  test("is bounded, valid on the wire, and drops items before sections when there is no room", () => {
    const issues = Array.from({ length: 5000 }, (_, index) => ({
      path: `connectors.items.${"x".repeat(200)}${index}`,
      code: "E_RANGE",
      message: "y".repeat(1024),
    }));
    const reported = Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`k${index}`, "z".repeat(9000)]));
    const many = ["a", "b", "c", "d", "e"].map((section) => standing({ section, issues, reported, rejected: 5000 }));
    const facts = factsOf(...many);
    expect(ShadowMap.safeParse(facts).success).toBe(true);
    expect(Object.keys(facts).length).toBeLessThan(5 * 64 + 48 + 5 * 8);
    expect(facts["config.a.reported.more"]).toBe(436);
    const { facts: sent, dropped } = withinLimits(facts);
    expect(dropped).toBeGreaterThan(0);
    for (const { section } of many) expect(sent[`config.${section}.state`]).toBe("converged");
  });

  test("has no key that is missing in the reference", () => {
    const patterns = configShadowKeys.map(
      ([key]) => new RegExp(`^${key.replaceAll(".", "\\.").replaceAll(/<[a-z]+>/g, ".+")}$`),
    );
    const facts = factsOf(
      standing({
        issues: [{ path: "connectors.a", code: "c", message: "m" }],
        drift: { count: 1, lastAt: 1, what: ["set a"] },
        reported: { a: 1 },
        version: { node: 1, cluster: 2 },
      }),
    );
    for (const key of Object.keys(facts))
      expect(
        patterns.some((pattern) => pattern.test(key)),
        key,
      ).toBe(true);
  });
});
