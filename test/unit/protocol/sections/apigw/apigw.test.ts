import { describe, expect, it } from "vitest";
import { ApigwSection } from "../../../../../src/protocol/sections/apigw/apigw.ts";
import { APPLIANCE } from "../../../../support/control-plane/example-documents.ts";
import { closedSection } from "../../../../support/sections.ts";

const unset = {
  enabled: false,
  host: "",
  port: 0,
  cert: "",
  wireguardEndpoint: "",
  wireguardPort: 0,
  wireguardEnabled: false,
};
const NAME = "must be an IPv4 address or a DNS name";

describe("the section apigw", () => {
  closedSection("apigw", ApigwSection, {
    good: [
      APPLIANCE.apigw,
      {},
      { enabled: false, wireguardEnabled: false },
      unset,
      { ...unset, enabled: true, host: "gw.example.net", port: 443, cert: "gw.example.net" },
      { ...unset, enabled: true, host: "198.51.100.10", port: 8443 },
      { ...unset, wireguardEnabled: true, wireguardEndpoint: "198.51.100.10", wireguardPort: 51_820 },
      { enabled: null, host: null, port: null, cert: null, wireguardEnabled: null },
    ],
    bad: [
      [{ ...unset, enabled: true }, "apigw.host: is required with enabled", "apigw.port: is required with enabled"],
      [
        { wireguardEnabled: true },
        "apigw.wireguardEndpoint: is required with wireguardEnabled",
        "apigw.wireguardPort: is required with wireguardEnabled",
      ],
      [{ ...unset, host: "2001:db8::1" }, `apigw.host: ${NAME}`],
      [{ ...unset, host: "no name" }, `apigw.host: ${NAME}`],
      [{ ...unset, port: 65_536 }, "apigw.port: must be 1..65535"],
      [{ ...unset, port: "443" }, "apigw.port: is text, and must be a whole number, 1..65535"],
      [{ ...unset, cert: "not a name" }, "apigw.cert: not a domain name"],
      [{ ...unset, wireguardEndpoint: "wg.example.net:51820" }, `apigw.wireguardEndpoint: ${NAME}`],
      [{ ...unset, wireguardPort: 1.5 }, "apigw.wireguardPort: must be 1..65535"],
      [{ ...unset, wireguardEnabled: "true" }, "apigw.wireguardEnabled: must be true or false"],
      [{ ...unset, privateKey: "k" }, "apigw.privateKey: is not a known field"],
      [{ enabled: true, host: 7, port: 443 }, "apigw.host: must be text"],
    ],
  });

  it("needs the names of the parts that are on, and of no other", () => {
    const fieldsOf = (body: object) =>
      ApigwSection.safeParse(body).error?.issues.map(({ path }) => path.join(".")) ?? [];
    expect(fieldsOf({ enabled: true, wireguardEnabled: false })).toEqual(["host", "port"]);
    expect(fieldsOf({ enabled: false, wireguardEnabled: true })).toEqual(["wireguardEndpoint", "wireguardPort"]);
  });
});
