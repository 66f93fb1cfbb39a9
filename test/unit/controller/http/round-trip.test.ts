import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { isObject } from "../../../../src/protocol/sections/common/forms.ts";
import { hideSecrets } from "../../../../src/protocol/documents/secrets.ts";
import type { Route } from "../../../../src/controller/http/route.ts";
import { validValues } from "../../../support/arbitrary.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";
import { runs } from "../../../support/sample.ts";

const NODE = "/node/{nodeID}";
const PAIR = "/cluster/pair.example.net";

/** A write: its operation, and the path and the place in the answer from which it is read back. */
type Write = readonly [operation: string, read: string, ...place: string[]];

const WRITES: readonly Write[] = [
  ["PUT /node/{nodeID}/config/alert", NODE, "config", "alert"],
  ["PUT /node/{nodeID}/config/connectors", NODE, "config", "connectors"],
  ["PUT /node/{nodeID}/config/services", NODE, "config", "services"],
  ["PUT /node/{nodeID}/config/gateway", NODE, "config", "gateway"],
  ["PUT /node/{nodeID}/config/network", NODE, "config", "network"],
  ["PUT /node/{nodeID}/config/ztnagw", NODE, "config", "apigw"],
  ["PUT /node/{nodeID}/config/snmp", NODE, "config", "snmp"],
  ["PUT /node/{nodeID}/tags", NODE],
  ["PUT /v2/node/{nodeID}/lifecycle-state", NODE],
  ["PUT /v2/node/{nodeID}/exec/limit", "/v2/node/{nodeID}/exec/limit"],
  ["PUT /v2/node/{nodeID}/kvm/volume/{name}", "/v2/node/{nodeID}/kvm/volume/one"],
  ["PUT /cluster/{clusterFQDN}/config/network", PAIR, "config", "network"],
  ["PUT /cluster/{clusterFQDN}/config/ztnagw", PAIR, "config", "apigw"],
  ["PUT /cluster/{clusterFQDN}/tags", PAIR],
  ["PUT /org/mine", "/org/mine"],
  ["PUT /org/auth", "/org/auth"],
  ["PUT /domain/{domain}/config/alert", "/domain/example.net", "config", "alert"],
  ["PUT /domain/{domain}/config/apigw", "/domain/example.net", "config", "apigw"],
  ["PUT /v2/service-user/{name}", "/v2/service-user/one"],
];

let bench: ApiBench;
let uid: string;

beforeAll(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one", config: {} })).uid;
  await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  await bench.call("POST", "/v2/service-user", { json: { name: "one" } });
  await bench.deps.machineVolumes.add(uid, { name: "one", deviceType: "disk" }, "test");
});

const { routes } = await ApiBench.create();
/** Fields that are left out: read and not written, of the other form of a section, or names of what does not exist. */
const LEFT_OUT: Readonly<Record<string, readonly string[]>> = {
  "PUT /org/mine": ["uid", "domain", "idp_provider", "licenses"],
  "PUT /node/{nodeID}/config/connectors": ["version", "items"],
  "PUT /node/{nodeID}/config/services": ["version", "items"],
  "PUT /v2/service-user/{name}": [
    "name",
    "orgId",
    "policies",
    "policyIds",
    "created_at",
    "clientId",
    "tokenCreated",
    "uid",
  ],
};

const filled = (path: string): string =>
  path
    .replace("{nodeID}", uid)
    .replace("{clusterFQDN}", "pair.example.net")
    .replace("{domain}", "example.net")
    .replaceAll(/\{\w+\}/g, "one");

function routeOf(operation: string): Route {
  const found = routes.find(({ method, path }) => `${method} ${path}` === operation);
  if (found === undefined) throw new Error(`${operation} has no route`);
  return found;
}

/** Returns what is shown of a body: secrets are empty. */
const shownOf = (json: unknown, section: string | undefined): unknown =>
  section === undefined ? json : hideSecrets({ [section]: json })[section];

describe("any record that a write accepts is read back unchanged:", () => {
  it.each(WRITES)("%s", async (operation, read, ...place) => {
    const { method, path, body } = routeOf(operation);
    if (body === undefined) throw new Error(`${operation} has no body`);
    let accepted = 0;
    const removal = routes.find((one) => one.method === "DELETE" && one.path === path && path.includes("/config/"));
    const leftOut = new Set(LEFT_OUT[operation]);
    const json = validValues(body).map((value): unknown => {
      const whole: unknown = JSON.parse(JSON.stringify(value));
      return isObject(whole) ? Object.fromEntries(Object.entries(whole).filter(([name]) => !leftOut.has(name))) : whole;
    });
    await fc.assert(
      fc.asyncProperty(json, async (written) => {
        // A secret that is not sent keeps its stored value.
        if (removal !== undefined) await bench.call("DELETE", filled(path));
        const answer = await bench.call(method, filled(path), { json: written });
        expect(answer.status, answer.text).toBeOneOf([200, 422]);
        if (answer.status === 422) return;
        accepted += 1;
        let found: unknown = (await bench.call("GET", filled(read))).json;
        for (const step of place) found = members(found)[step];
        const shown = shownOf(written, place[0] === "config" ? place[1] : undefined);
        if (place.length > 0) expect(found).toStrictEqual(shown);
        else expect(found).toMatchObject(isObject(shown) ? shown : {});
      }),
      // Few random values of a large section are accepted; the empty one is.
      { numRuns: runs(100), examples: [[{}]] },
    );
    expect(accepted).toBeGreaterThan(0);
  });
});
