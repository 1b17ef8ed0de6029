export default ({parentElement, data}) => drawTokens(parentElement.querySelector(".token-view"), data);
