// What the lab shows: the commands of the README, and what each must answer.
import type { Stop } from "../demo-tour.ts";

const LAB = "scripts/lab";
const WEB = "http://192.168.1.2:8080";

/** The stops in order; each command is in the README as it stands here. */
export const tour: readonly Stop[] = [
  {
    title: "a page of the web server on site B, through a connector on site A",
    command: `${LAB} exec client curl -s --retry 30 --retry-all-errors --retry-delay 1 ${WEB}/`,
    expect: /Hello from site B/,
  },
  {
    title: "the gateways of A: which one carries, since when and why",
    command: `${LAB} exec a holdfast gateways`,
    expect: /gw1\.lab\.example .* up .*carries[^]*gw2\.lab\.example .* up /,
  },
  {
    title: "cut gateway 1 in the middle of a download, which goes on by gateway 2",
    command: [
      `${LAB} exec client sh -c 'until curl -s -C - --limit-rate 16M -o .lab/large ${WEB}/large; do date +"cut at %T"; done; date +"done at %T"' &`,
      `sleep 2; ${LAB} cut gw1; wait`,
      `sha256sum .lab/large; ${LAB} exec client curl -s ${WEB}/large.sha256`,
    ].join("\n"),
    expect: /cut at [^]*done at .*\n([0-9a-f]{64}) [^]*\1 /,
  },
  {
    title: "what A says of it now",
    command: `${LAB} exec a holdfast gateways`,
    expect: /gw1\.lab\.example .* down [^]*gw2\.lab\.example .* up .*carries/,
  },
  {
    title: "the event of it, with how long it took",
    command: `${LAB} api GET '/v2/event/{a}?eventTypes=Data%20Plane%20Failover'`,
    // The bar is 3 s.
    expect: /Traffic goes by gw2 instead of gw1 in (\d{1,3}|[12]\d{3}) ms/,
    isEventual: true,
  },
  {
    title: "the cable is mended, and gateway 1 is back",
    command: `${LAB} heal gw1; until ${LAB} exec a holdfast health > .lab/health; do sleep 1; done; ${LAB} exec a holdfast gateways`,
    expect: /gw1\.lab\.example .* up /,
  },
  {
    title: "round trips and hops to both gateways, minute by minute; the first minute has to be over",
    command: `${LAB} api GET "/v2/node/{a}/plugin-logs/gateway-details?startDate=$(date -d '-1 hour' +%s)&endDate=$(date -d '+1 hour' +%s)"`,
    expect: /^(?=[^]*"node":"gw1")(?=[^]*"node":"gw2")[^]*"numRtt":[1-9]\d*,"hops":\[\{"hop":1,"ip":"192.168.1.1"/,
    isEventual: true,
    limitMs: 80_000,
  },
  {
    title: "remove a node, and its sessions end",
    command: [
      `${LAB} exec client curl -s --limit-rate 1M -o .lab/large ${WEB}/large &`,
      `sleep 1; ${LAB} api DELETE '/node/{b}'; wait $! || echo "the download ended with status $?"`,
    ].join("\n"),
    expect: /the download ended with status (18|52|56)/,
  },
  {
    title: "B is no peer of A any more",
    command: `${LAB} exec a holdfast peers`,
    expect: /^(?![^]*\bb\.lab\.example)[^]*gw1/,
  },
];
