from whence.cli import main

main()
