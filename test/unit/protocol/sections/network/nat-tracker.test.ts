import { expect, test } from "vitest";
import { natTracker, trackedNats } from "../../../../../src/protocol/sections/network/nat-tracker.ts";

test.each([
  [{ uid: "n-1" }, undefined, 3, "n-1"],
  [{ uid: "0b1c:a.b_C" }, "red", 0, "0b1c:a.b_C"],
  [{}, undefined, 3, "default:3"],
  [{}, "red", 0, "red:0"],
  [{ uid: 'x" } flush ruleset' }, "red", 1, "red:1"],
  [{ uid: "" }, undefined, 1, "default:1"],
  [{ uid: "-x" }, undefined, 1, "default:1"],
  [{ uid: "x".repeat(101) }, undefined, 1, "default:1"],
  [{ uid: "a\nb" }, undefined, 1, "default:1"],
])("%j of VRF %s at %s is tracked as %s", (nat, vrf, at, tracker) => {
  expect(natTracker(nat, vrf, at)).toBe(tracker);
});

test("those of the default context come first, then those of each VRF", () => {
  const nat = { source: "10.0.0.0/24", masquerade: true };
  const routing = { routes: [], rules: [] };
  expect(
    trackedNats({
      routing: { ...routing, nats: [nat] },
      vrfs: [
        { ...routing, name: "red", forwarding: true, nats: [nat, { ...nat, uid: "u" }] },
        { ...routing, name: "blue", forwarding: true, nats: [] },
      ],
    }),
  ).toEqual([
    { tracker: "default:0", nat },
    { tracker: "red:0", vrf: "red", nat },
    { tracker: "u", vrf: "red", nat: { ...nat, uid: "u" } },
  ]);
});
