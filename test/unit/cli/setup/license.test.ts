import { expect, it } from "vitest";
import { judgeLicense } from "../../../../src/cli/setup/license.ts";
import { licenseClaims, someLicense } from "../../../support/control-plane/license.ts";

const signed = (license: string): string => `${license.split(".").slice(0, 2).join(".")}.${"s".repeat(86)}`;
const now = licenseClaims.iat * 1000;
const good = signed(someLicense({}));

it("accepts a usable one", () => {
  expect(judgeLicense(`\n${good} `, { now, profile: "agent" }).claims).toEqual(licenseClaims);
});

it.each<[string, string, { now?: number; profile?: "appliance" | "agent" }, string]>([
  ["cut in the signature", good.slice(0, -1), {}, "cut short: 85 of 86"],
  ["cut before the signature", good.slice(0, good.lastIndexOf(".")), {}, "three parts"],
  ["with a longer signature", `${good}s`, {}, "87 characters"],
  [
    "of another algorithm",
    signed(someLicense({}, { alg: "ES256", typ: "holdfast-license+jwt", kid: "k" })),
    {},
    "header",
  ],
  [
    "of another type",
    signed(someLicense({}, { alg: "Ed25519", typ: "holdfast-node+jwt", kid: "k" })),
    {},
    "expected holdfast-license+jwt",
  ],
  ["that expired", good, { now: licenseClaims.exp * 1000 }, "it expired at 2027-01-16"],
  [
    "for the other profile",
    good,
    { profile: "appliance" },
    "it is for an agent, and this machine is to be an appliance",
  ],
])("refuses one %s", (_, text, rules, why) => {
  expect(() => judgeLicense(text, { now, ...rules })).toThrow(why);
});
