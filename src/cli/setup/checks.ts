import { hostDialler, dialRequestFor } from "../../host/net/dial.ts";
import { httpHead } from "../../host/net/net-probe.ts";
import type { Reader } from "../../host/reader.ts";
import { askServer, readNameServers, type ServerAnswer } from "../../host/net/resolver.ts";
import type { ProxySettings } from "../../lib/net/proxy.ts";
import { isIP } from "node:net";
import type { License } from "../../protocol/documents/claims.ts";
import { clockBehindText, type ClockBehind } from "../../protocol/local/known-time.ts";
import { checkControlPlane } from "../netcheck/control-plane.ts";
import type { Finding } from "../netcheck/result.ts";
import { tried, wordsOf, type CheckTools } from "../netcheck/tools.ts";

/** A result of netcheck's check under another name. */
export interface SetupFinding extends Omit<Finding, "check"> {
  readonly check: string;
}

export interface SetupChecks {
  readonly controlPlane: Pick<License, "iss" | "spki"> | undefined;
  readonly proxies: ProxySettings;
  readonly repositoryUrl: string | undefined;
  readonly clockBehind: ClockBehind | undefined;
}

/** Checks the conditions to register this machine. */
export async function runChecks(
  { controlPlane, proxies, repositoryUrl, clockBehind }: SetupChecks,
  reader: Reader,
  tools: CheckTools,
): Promise<readonly SetupFinding[]> {
  const url = controlPlane === undefined ? undefined : new URL(controlPlane.iss);
  const [servers, plane, repository] = await Promise.all([
    url === undefined || isIP(url.hostname.replace(/^\[|\]$/g, "")) !== 0
      ? []
      : checkServers(url.hostname, reader, tools),
    url === undefined ? [] : checkControlPlane({ url, pins: controlPlane?.spki ?? [], proxies }, tools),
    repositoryUrl === undefined ? undefined : checkRepository(new URL(repositoryUrl), proxies, tools),
  ]);
  const isPlaneTelling = plane.some(({ check, status }) => check === "clock" && status !== "skip");
  return [
    ...(clockBehind === undefined ? (isPlaneTelling ? [] : [clockFine]) : [clockFinding(clockBehind)]),
    ...servers,
    ...plane.map((finding) => (finding.check === "tls" ? tlsSaid(finding, clockBehind) : finding)),
    ...(repository === undefined ? [] : [repository]),
  ];
}

const clockFine: SetupFinding = { check: "clock", status: "pass", message: "not before any time that is known" };

function clockFinding(behind: ClockBehind): SetupFinding {
  return { check: "clock", status: "fail", ...clockBehindText(behind) };
}

const SERVER_WORDS: Readonly<Record<ServerAnswer, readonly [message: string, fix: string]>> = {
  ok: ["knows the control plane", ""],
  "name-not-resolved": [
    "does not know the control plane's name",
    "use a name server that does, or check the license's control plane",
  ],
  unreachable: ["does not answer", "let UDP port 53 to it through, or use another name server"],
  misconfigured: ["refuses to serve this machine", "use another name server, or have this machine allowed"],
};

async function checkServers(name: string, reader: Reader, { signal }: CheckTools): Promise<readonly SetupFinding[]> {
  const servers = readNameServers(reader);
  if (servers.length === 0) {
    return [
      {
        check: "name-server",
        status: "fail",
        message: "none is set",
        fix: "give one in the network step, or in /etc/resolv.conf",
      },
    ];
  }
  return Promise.all(
    servers.map(async (server): Promise<SetupFinding> => {
      const answer = await askServer(server, name, signal);
      const [message, fix] = SERVER_WORDS[answer];
      if (answer === "ok") return { check: "name-server", status: "pass", message: `${server} ${message}` };
      return { check: "name-server", status: "fail", message: `${server} ${message} (${name})`, fix };
    }),
  );
}

/** Converts netcheck's result for the key to one for the certificate chain. */
function tlsSaid(finding: Finding, clockBehind: ClockBehind | undefined): SetupFinding {
  if (finding.status === "skip") return finding;
  // A certificate that is not yet valid means a wrong clock, not TLS inspection.
  if (clockBehind !== undefined && /CERT_NOT_YET_VALID|CERT_HAS_EXPIRED/.test(finding.message)) {
    return { ...finding, fix: clockBehindText(clockBehind).fix };
  }
  const isWhole = finding.status === "pass";
  return {
    ...finding,
    message: `${isWhole ? "nobody has altered the chain" : "the chain is altered or not trusted"}: ${finding.message}`,
  };
}

async function checkRepository(url: URL, proxies: ProxySettings, tools: CheckTools): Promise<SetupFinding> {
  const dialler = hostDialler(tools.clock, proxies, tools.resolve);
  try {
    const head = await tried(tools, async (signal) => {
      const { socket } = await dialler.dial(dialRequestFor(url, [], tools.timeoutMs), signal);
      return httpHead(socket, url, signal);
    });
    return { check: "repository", status: "pass", message: `${url.host} answers with status ${head.status}` };
  } catch (error) {
    const message = `${url.host}: ${wordsOf(error, tools)}`;
    return {
      check: "repository",
      status: "fail",
      message,
      fix: "let the repository through every firewall and proxy, or change repositoryUrl",
    };
  }
}
