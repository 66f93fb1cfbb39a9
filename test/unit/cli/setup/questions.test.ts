import { describe, expect, it } from "vitest";
import {
  firstQuestion,
  questions,
  type Answers,
  type Facts,
  type QuestionId,
} from "../../../../src/cli/setup/questions.ts";
import { someLicense } from "../../../support/control-plane/license.ts";

const NOW = Date.UTC(2026, 10, 21, 18, 30);
const facts: Facts = {
  nics: ["eth0", "eth1"],
  proxy: undefined,
  noProxy: [],
  whyNoNetwork: undefined,
  isRegistered: false,
  now: NOW,
  least: Date.UTC(2026, 10, 1),
};
const license = `${someLicense({}).split(".").slice(0, 2).join(".")}.${"s".repeat(86)}`;

/** Answers the questions in order; returns the result and the place where it ended. */
function converse(texts: readonly string[], given: Facts = facts) {
  let answers: Answers = {};
  let id: QuestionId | "done" = firstQuestion(given);
  const requested: string[] = [];
  for (const text of texts) {
    if (id === "done") throw new Error(`nothing was asked any more before ${text}`);
    requested.push(id);
    const parsed = questions[id].parse(text, answers, given);
    if (parsed.is !== "answer") return { answers, requested, end: parsed };
    ({ answers } = parsed);
    id = parsed.next;
  }
  return { answers, requested, end: id };
}

describe("the dialogue", () => {
  it("asks for a static address, a proxy, the time and a license", () => {
    const { answers, requested, end } = converse([
      "eth0",
      "static",
      "192.0.2.10",
      "255.255.255.128",
      "192.0.2.1",
      "192.0.2.53 198.51.100.53",
      "http://192.0.2.9:3128",
      "localhost, .internal",
      "",
      license,
    ]);
    expect(requested).toEqual(["nic", "method", "ip", "mask", "gateway", "dns", "proxy", "noProxy", "time", "license"]);
    expect(end).toBe("done");
    expect(answers).toMatchObject({
      wan: { nic: "eth0", fixed: { ip: "192.0.2.10/25", gateway: "192.0.2.1" }, dns: ["192.0.2.53", "198.51.100.53"] },
      proxy: "http://192.0.2.9:3128",
      noProxy: ["localhost", ".internal"],
      license,
    });
  });

  it("leaves everything unchanged if the operator only presses Enter", () => {
    expect(converse(["", "", "", ""])).toEqual({
      answers: {},
      requested: ["nic", "proxy", "time", "license"],
      end: "done",
    });
  });

  it("asks for no license on a registered node, and for no network if unsupported", () => {
    expect(converse(["", ""], { ...facts, isRegistered: true, whyNoNetwork: "no agent runs" }).requested).toEqual([
      "proxy",
      "time",
    ]);
  });

  it("accepts DHCP, a prefix length in the address, and no proxy", () => {
    expect(converse(["eth1", "", "none", ""]).answers).toMatchObject({ wan: { nic: "eth1", dns: [] }, proxy: null });
    expect(converse(["eth1", "static", "192.0.2.10/30", "", ""]).answers.wan).toEqual({
      nic: "eth1",
      fixed: { ip: "192.0.2.10/30" },
      dns: [],
    });
  });

  it("reads the time in UTC", () => {
    expect(converse(["", "", "2026-11-21 18:31"]).answers.time).toBe(NOW + 60_000);
  });

  it("reads an input with a slash, or a short one that is no token, as the file of a license", () => {
    for (const path of ["/tmp/l.jwt", "license.jwt", "./x"])
      expect(converse(["", "", "", path]).end).toEqual({ is: "file", path });
  });

  const cut = license.slice(0, -10);
  it.each<[string, readonly string[], string]>([
    ["an interface that is not there", ["wan"], "there is no interface wan"],
    ["a third way", ["eth0", "pppoe"], "dhcp or static"],
    ["an address of four figures too many", ["eth0", "static", "192.0.2.300"], "not the IPv4 address"],
    ["a loopback address", ["eth0", "static", "127.0.0.2/8"], "not the IPv4 address"],
    ["a prefix that is too long", ["eth0", "static", "192.0.2.1/33"], "not the IPv4 address"],
    ["a mask with holes", ["eth0", "static", "192.0.2.1", "255.0.255.0"], "neither a mask"],
    ["a mask of nothing", ["eth0", "static", "192.0.2.1", "0.0.0.0"], "neither a mask"],
    ["a gateway elsewhere", ["eth0", "static", "192.0.2.1/24", "198.51.100.1"], "not in the network of 192.0.2.1/24"],
    ["itself as the gateway", ["eth0", "static", "192.0.2.1/24", "192.0.2.1"], "own address"],
    ["a name as a name server", ["eth0", "static", "192.0.2.2/24", "", "dns.example.net"], "dns.example.net is not"],
    ["a proxy over TLS", ["", "https://proxy.example.net"], "http:// address"],
    ["a proxy without its scheme", ["", "proxy.example.net:3128"], "http:// address"],
    ["a time of no calendar", ["", "", "2026-02-30 12:00"], "2026-11-21 18:30"],
    ["a time of no clock", ["", "", "2026-11-21 25:00"], "2026-11-21 18:30"],
    ["a time before what is known", ["", "", "2026-10-31 12:00"], "2026-11-01 00:00:00 UTC or later"],
    ["a license that was cut", ["", "", "", cut], "signature (part 3 of 3) is cut short: 76 of 86"],
  ])("refuses %s, with the reason", (_, texts, why) => {
    expect(converse(texts).end).toMatchObject({ is: "wrong", why: expect.stringContaining(why) as string });
  });
});
