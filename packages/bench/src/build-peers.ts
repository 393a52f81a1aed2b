/** `npm run bench:peers`: builds the programs that the benchmarks compare with, or says where they are. */

import { runCommand } from "./owned-children.ts";
import { providePeers } from "./peers/peer-build.ts";

await runCommand(async () => {
  const peers = await providePeers((line) => console.error(line));
  console.log(`${peers.folder}\n${peers.origin}`);
});
