import { expect, test } from "vitest";
import { parseOffer } from "../../../../../src/host/network/state/lease-offer.ts";

test.each([
  ["", { nameServers: [] }],
  ["router \ndns \n", { nameServers: [] }],
  [
    "router 192.0.2.1\ndns 192.0.2.53 192.0.2.53 192.0.2.54\n",
    { router: "192.0.2.1", nameServers: ["192.0.2.53", "192.0.2.54"] },
  ],
  ["router 0.0.0.0\ndns 127.0.0.1 224.0.0.251 255.255.255.255 a.b $(id) 2001:db8::1\n", { nameServers: [] }],
  [
    `dns ${Array.from({ length: 100 }, (_, at) => `192.0.2.${at}`).join(" ")}`,
    { nameServers: ["192.0.2.0", "192.0.2.1", "192.0.2.2"] },
  ],
])("accepts only host addresses of a server: %j", (text, offer) => {
  expect(parseOffer(text)).toStrictEqual(offer);
});
