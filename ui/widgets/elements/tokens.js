// A switch recolours directly: without an expert the others share its weight, until the page has the mixture's own answer.
const without = (data, off) => {
  const keep = data.experts.map(({name}) => !off.includes(name));
  const weights = (data.full || data.weights).map((row) => {
    const sum = row.reduce((total, weight, place) => total + (keep[place] ? weight : 0), 0) || 1;
    return row.map((weight, place) => keep[place] ? weight / sum : 0);
  });
  const shares = weights.map((row) => Math.max(...row));
  return {...data, off, weights, shares, leads: weights.map((row, at) => row.indexOf(shares[at]))};
};
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export default ({parentElement, data, setStateValue}) => {
  const root = parentElement.querySelector(".token-view");
  const words = JSON.stringify(data);
  if (root.words === words) return undefined;  // equal data changes nothing
  root.words = words;
  if (!data.answered) return drawTokens(root, data);
  if (same(root.chosen, data.answered)) root.chosen = undefined;
  const draw = () => {
    const off = root.chosen || data.off;
    drawTokens(root, root.chosen ? without(data, off) : data, (name) => {
      root.chosen = off.includes(name) ? off.filter((one) => one !== name) : [...off, name];
      draw();
      setStateValue("off", root.chosen);
    });
  };
  draw();
};
