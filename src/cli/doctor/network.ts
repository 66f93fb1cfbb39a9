import { askServer, readNameServers, type ServerAnswer } from "../../host/net/resolver.ts";
import { setAddresses } from "../../host/net/system-resolve.ts";
import type { NetworkCheck } from "../netcheck/result.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

export const networkChecks: CheckFamily = {
  name: "network",
  run: async ({ network }) => (await network()).filter(({ target }) => target !== "node").map(networkCheck),
};

/** Converts a network check to a doctor's check. Pure. */
export function networkCheck({ target, name, path, check, status, code, message, fix }: NetworkCheck): Check {
  const at = [target, name, path, check]
    .filter((part) => part !== undefined && part !== "")
    .join(" ")
    .slice(0, 300);
  switch (status) {
    case "pass":
      return pass(at, message);
    case "skip":
      return skip(at, code ?? "skipped", message);
    case "fail":
      // One gateway of several may be down; without the control plane the node goes on with what it has.
      return (target === "gateway" ? warn : fail)(
        at,
        code ?? `${check}-failed`,
        message,
        fix ?? "'holdfast netcheck' says more",
      );
  }
}

export const resolverChecks: CheckFamily = {
  name: "resolver",
  async run({ reader, left, signal }) {
    const { node, settings } = await left();
    const servers = readNameServers(reader);
    if (servers.length === 0)
      return [
        warn("servers", "no-name-server", "no name server is set", "name one in /etc/resolv.conf, or have DHCP do it"),
      ];
    const host = node === undefined ? "." : new URL(node.session).hostname;
    // Nothing is resolved for a name whose address is set by hand.
    const name = (settings.isGood ? setAddresses(settings.hosts ?? {}, host)?.[0] : undefined) ?? host;
    const answers = await Promise.all(
      servers.map(async (server) => [server, await askServer(server, name, signal)] as const),
    );
    const isAnyGood = answers.some(([, answer]) => isWell(answer, node !== undefined, name));
    return answers.map(([server, answer]) =>
      serverCheck(server, answer, name, isWell(answer, node !== undefined, name), isAnyGood),
    );
  },
};

const isAddress = (name: string): boolean => /^[\d.]+$|^\[?[\da-f:]+\]?$/i.test(name);
/** Accepts any answer if no particular name must resolve. */
const isWell = (answer: ServerAnswer, hasName: boolean, name: string): boolean =>
  answer === "ok" || (answer === "name-not-resolved" && (!hasName || isAddress(name)));

/** Judges the answer of one name server; a warning if another server answers. Pure. */
export function serverCheck(
  server: string,
  answer: ServerAnswer,
  name: string,
  isGood: boolean,
  isAnyGood: boolean,
): Check {
  if (isGood) return pass(server, "it answers");
  const text = {
    ok: "",
    "name-not-resolved": `it does not know ${name}`,
    unreachable: "it does not answer",
    misconfigured: "it refuses to answer",
  };
  return (isAnyGood ? warn : fail)(
    server,
    answer === "ok" ? "ok" : answer,
    text[answer],
    "take it out of the resolver's configuration, or let UDP and TCP port 53 through to it",
  );
}
