/**
 * The union of all prompts' prefixes: what any server, with any cache, must compute at least once. A node is one token after
 * one exact prefix.
 */

type Node = Map<number, Node>;

/**
 * Distinct prefixes by length: entry d counts those of d + 1 tokens. The sum is the number of unavoidable tokens, and d the depth
 * at which each must be computed.
 */
export function unavoidableByDepth(prompts: Iterable<readonly number[]>): number[] {
  const root: Node = new Map();
  const counts: number[] = [];
  for (const prompt of prompts) {
    let node = root;
    for (const [depth, token] of prompt.entries()) {
      let child = node.get(token);
      if (child === undefined) {
        child = new Map();
        node.set(token, child);
        counts[depth] = (counts[depth] ?? 0) + 1;
      }
      node = child;
    }
  }
  return counts;
}

export function unavoidableTokens(prompts: Iterable<readonly number[]>): number {
  return unavoidableByDepth(prompts).reduce((total, count) => total + count, 0);
}
