/** `npm run bench:peers`: builds the programs that the benchmarks compare with, or says where they are. */

import { messageOf } from "@kvasir/kit";
import { providePeers } from "./peers/peer-build.ts";

try {
  const peers = await providePeers((line) => console.error(line));
  console.log(`${peers.folder}\n${peers.origin}`);
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 1;
}
