import { expect, test } from "vitest";
import { gatewayDetails } from "../../../../../src/agent/telemetry/conditions/gateway-details.ts";
import { uidOf } from "../../../../support/overlay/mesh.ts";

const BUCKET = {
  gateway: uidOf(2),
  path: "",
  time: 60_000,
  numRtt: 12,
  answered: 11,
  minRtt: 0.123_456,
  maxRtt: 2,
  meanRtt: 1,
  stdRtt: 0.5,
};
const NO_HOPS = { found: [], nameOf: (ip: string) => ip };

test("sends a minute of round trips as one record, without a name for the default path", () => {
  const record = { time: 60_000, node: "gw1", numRtt: 12, minRtt: 0.123, maxRtt: 2, meanRtt: 1, stdRtt: 0.5 };
  expect(gatewayDetails(BUCKET, "gw1", true, NO_HOPS)).toEqual(record);
  expect(gatewayDetails({ ...BUCKET, path: "wan2" }, "gw1", true, NO_HOPS)).toEqual(record);
  expect(gatewayDetails({ ...BUCKET, path: "wan2" }, "gw1", false, NO_HOPS)).toEqual({ ...record, path: "wan2" });
});

test("sends no record without any answer", () => {
  expect(gatewayDetails({ ...BUCKET, answered: 0 }, "gw1", true, NO_HOPS)).toBeUndefined();
});

test("sends no record that the control plane would refuse", () => {
  expect(gatewayDetails({ ...BUCKET, maxRtt: 3_600_001 }, "gw1", true, NO_HOPS)).toBeUndefined();
  expect(gatewayDetails(BUCKET, "Not a name", true, NO_HOPS)).toBeUndefined();
});

test("sends hops with their names, or else their addresses", () => {
  const hop = { minRtt: 1, maxRtt: 1, meanRtt: 1, numRtt: 3 };
  const found = [
    { ...hop, hop: 1, ip: "10.0.0.1" },
    { ...hop, hop: 2, ip: "10.0.0.2" },
  ];
  const nameOf = (ip: string): string => (ip === "10.0.0.1" ? "router.example.org" : ip);
  expect(gatewayDetails(BUCKET, "gw1", true, { found, nameOf })?.hops).toEqual([
    { ...hop, hop: 1, ip: "10.0.0.1", fqdn: "router.example.org" },
    { ...hop, hop: 2, ip: "10.0.0.2", fqdn: "10.0.0.2" },
  ]);
});
